// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "adapter/congestion/incast.h"
#include "base/bytes.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// What a responder of ours tells a requester of ours beside what every adapter tells: which packets it has
// that came after a missing one. An acknowledgement can only say "all before", a NAK only "not this one", so
// that a requester learns of one gap in a round trip (IBTA volume 1, 9.7.5.1.1); on a link that loses one
// packet in a hundred that is a hundred packets a round trip, whatever the link carries.
//
// The packet has an opcode of those that are left to manufacturers (table 38): its top bits name no transport
// service, and adapters drop it (9.6.1.2). Linux rxe before 5.16 looks at the PSN instead, and takes an
// unknown opcode with one that is outstanding for an error of the QP; so the packet's PSN is one from the
// distant past, which every requester passes over. Nothing is promised by it, and nothing depends on it:
// acknowledgements are sent as ever, and NAKs to whom does not understand. A responder sends a few to a
// requester that it does not know, and goes on, without NAKs, when one of them was answered ("heard"). That
// is said again to each NAK of one that has told something.
//
// Its payload is a PSN and up to kMax ranges, each two words: the distance of the first PSN of a range from
// that one, and how many there are. What lies between them is missing. The PSN is the first that has not
// arrived (for XRC it may be named again: who owns a queue may not be ready for it); or, where one packet has
// not room for all ranges, where the packet before this one ended: then the highest bit of its word is set.
// Seven bits between that and the PSN tell of other senders to the same process (incast_bits.h).
struct Sack {
  static constexpr uint32_t kMax = 127;
  static constexpr uint32_t kRangeBytes = 8;
  static constexpr uint32_t kMaxBytes = 4 + kMax * kRangeBytes;
  static constexpr uint32_t kPast = 1u << 22;
  static constexpr uint32_t kMaxPackets = 16;
  static constexpr uint32_t kContinues = 1u << 31;
  static uint32_t max_at(uint32_t mtu) { return std::min(kMax, (mtu - 4) / kRangeBytes); }
  // To one who may not understand; later of one gap in so many, as all of these, or what it said to them, may
  // have been lost: a queue that overflows takes everything for a while.
  static constexpr uint32_t kMaxUnheard = 8;
  static constexpr uint32_t kGapsUnheard = 16;

  struct Range {
    roce::Psn first;
    uint32_t count;
  };

  // Reads a packet's payload. Ranges that do not follow each other end it; an empty one has none.
  static Sack read(ConstBytes payload);
  // Writes the payload. Returns the bytes used.
  uint32_t write(std::array<std::byte, kMaxBytes>& payload) const;

  roce::Psn expected;
  bool continues = false;
  congestion::Incast incast;
  std::array<Range, kMax> ranges;
  uint32_t count = 0;
};

}  // namespace verbena::transport
