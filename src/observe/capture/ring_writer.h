// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/time.h"
#include "observe/capture/ring_file.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::capture {

// A packet or super-packet that this process has sent. All memory that it refers to belongs to the caller.
struct SentPacket {
  TimePoint time;
  const roce::Path& path;
  const roce::Headers& headers;
  std::span<const ConstBytes> payload;  // pieces of user memory; reading may fault
  uint32_t payload_bytes;               // total length of the pieces
  uint32_t count = 1;
  roce::Qpn source = {};  // sending QP; 0 if unknown
  uint8_t flags = 0;      // RecordHead::flags
};

// The writing end of a ring, in the process that sends the packets. Never waits: if the ring is full, does
// not record the packets but counts them (RingMemory::left_out). One thread at a time.
class RingWriter {
 public:
  // REQUIRES: nothing has been written to the ring before
  explicit RingWriter(RingMemory& ring);

  // Records the packets of `packet`. If the ring is full, or no path MTU fits (path_mtu_of()), does not
  // record them but counts them (RingMemory::left_out). REQUIRES: memory::install_fault_guard() was called.
  // REQUIRES: payload_bytes <= kMaxRecordPayload
  void put(const SentPacket& packet);

 private:
  bool has_room(uint64_t bytes);
  bool write_payload(const SentPacket& packet, uint32_t mtu, std::byte* to) const;

  RingMemory& ring_;
  const uint32_t snap_bytes_;
  uint64_t written_ = 0;
  uint64_t taken_ = 0;  // the reader's counter, as last seen
  uint64_t left_out_ = 0;
};

}  // namespace verbena::capture
