// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "adapter/queues/work_queue.h"
#include "adapter/shm/layout.h"
#include "adapter/shm/peer_memory.h"
#include "adapter/transport/packet_io.h"
#include "base/bytes.h"

namespace verbena::engine {

// The payload of the packet at hand in a lane, which lies in the writer's memory (EntryKind::kLentPacket).
// For the shard's lock holder.
class LentMemory final : public transport::LentPayload {
 public:
  // What is lent lies in this memory from now on, and the writer of the lane is told that it may lend; null:
  // it may not.
  void set_memory(shm::Lane& lane, PeerMemory* memory) {
    lane_ = &lane;
    memory_ = memory;
    tell();
  }

  // Where the entry says that it is. False: it says nothing that can be.
  bool take(ConstBytes list);

  uint32_t bytes() const override { return bytes_; }
  bool fetch(const transport::Connection& connection, std::span<const ConstBytes> to) override;

 private:
  void tell() const {
    const bool can = memory_ != nullptr && memory_->can_fetch();
    lane_->takes_lent.store(can ? 1 : 0, std::memory_order_relaxed);
  }

  shm::Lane* lane_ = nullptr;
  PeerMemory* memory_ = nullptr;
  std::array<shm::LentPiece, queues::kMaxSge> pieces_;
  uint32_t count_ = 0;
  uint32_t bytes_ = 0;
};

}  // namespace verbena::engine
