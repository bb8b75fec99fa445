// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "observe/capture/ring_file.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::capture {

// A validated record. The payload is in the reader's buffer and valid until the next record is read.
struct Record {
  TimePoint time;
  roce::Path path;
  roce::Headers headers;
  ConstBytes payload;  // the recorded part of the payload, packet by packet
  uint32_t payload_bytes = 0;
  uint32_t count = 1;
  uint32_t path_mtu = 0;
  // Maximum number of bytes recorded of each packet's payload; 0 if the sender's payload could not be read.
  uint32_t snap_bytes = 0;
  roce::Qpn source;           // sending QP; 0 if unknown
  bool by_initiator = false;  // no packet was sent: the initiator accessed the peer's memory itself
  bool peers_answer = false;  // with by_initiator: the response that the peer would have sent
};

// The reading end of a ring, in `verbena capture`. Does not trust the writing process: copies each record
// before validating it. The first invalid record breaks the ring, and nothing more is read from it. One
// thread.
class RingReader {
 public:
  // `snap_bytes`: RingMemory::snap_bytes, with which the ring was created.
  RingReader(RingMemory& ring, uint32_t snap_bytes);

  // Returns the oldest record in the ring; until pop(), always the same record. Returns nullptr if there is
  // no record now, or the ring is broken.
  const Record* front();
  // Removes the record that front() returned, and frees its space for the writer. REQUIRES: front() has
  // returned a record
  void pop();
  bool is_broken() const { return broken_; }
  // Returns the number of packets that the writer could not record, mostly because the ring was full. The
  // number is not verified.
  uint64_t left_out() const { return ring_.left_out.load(std::memory_order_relaxed); }

 private:
  bool parse(const RecordHead& head, uint32_t at);

  static constexpr uint32_t kMaxRecord =
      sizeof(RecordHead) + roce::kMaxHeaderBytes + kMaxRecordPayload + kRecordUnit;

  RingMemory& ring_;
  const uint32_t snap_bytes_;
  uint64_t taken_ = 0;
  uint64_t next_ = 0;  // start of the record after the front one
  bool has_front_ = false;
  bool broken_ = false;
  Record record_;
  std::array<std::byte, kMaxRecord> copy_;
};

}  // namespace verbena::capture
