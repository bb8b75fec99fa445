// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "observe/capture/layout.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::capture {

// What a record says, checked. The payload lies in the reader and is good until the next record is looked at.
struct Record {
  TimePoint time;
  roce::Path path;
  roce::Headers headers;
  ConstBytes payload;  // what is kept of it, packet by packet
  uint32_t payload_bytes = 0;
  uint32_t count = 1;
  uint32_t path_mtu = 0;
  uint32_t snap_bytes = 0;  // what is kept of each packet at most
  roce::Qpn source;         // 0: unknown
  bool by_initiator = false;
  bool peers_answer = false;
};

// The reading end of a ring, in `verbena capture`. The process that writes it is not trusted: a record is
// copied, then checked. The first one that cannot be breaks the ring, and nothing more is read of it. One
// thread.
class RingReader {
 public:
  // `snap_bytes`: what the ring was made with.
  RingReader(RingMemory& ring, uint32_t snap_bytes);

  // The next record, the same until pop(); nullptr: there is none now.
  const Record* front();
  // REQUIRES: front() has answered a record
  void pop();
  bool is_broken() const { return broken_; }
  // Packets that found no room, as the writer says.
  uint64_t left_out() const { return ring_.left_out.load(std::memory_order_relaxed); }

 private:
  bool parse(const RecordHead& head, uint32_t at);

  static constexpr uint32_t kMaxRecord =
      sizeof(RecordHead) + roce::kMaxHeaderBytes + kMaxRecordPayload + kRecordUnit;

  RingMemory& ring_;
  const uint32_t snap_bytes_;
  uint64_t taken_ = 0;
  uint64_t next_ = 0;  // where the record behind the front one begins
  bool has_front_ = false;
  bool broken_ = false;
  Record record_;
  std::array<std::byte, kMaxRecord> copy_;
};

}  // namespace verbena::capture
