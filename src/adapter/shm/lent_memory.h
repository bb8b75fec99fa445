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

// The rendezvous payload of the packet that a PacketReader has just parsed: the payload is still in the
// writer's memory (EntryKind::kLentPacket). For the shard's lock holder.
class LentMemory final : public transport::LentPayload {
 public:
  // Sets the memory from which payloads are fetched; null: payloads cannot be fetched. Also tells the
  // packets' writer, by the word `takes_lent` of `lane`, whether it may leave payloads in its memory.
  void set_memory(shm::Lane& lane, PeerMemory* memory) {
    lane_ = &lane;
    memory_ = memory;
    tell();
  }

  // Takes the list of LentPiece in an entry, which says where the packet's payload lies. Returns false if the
  // list is malformed, or if the payload is empty or longer than kMaxLentBytes.
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
