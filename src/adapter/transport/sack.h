// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "adapter/congestion/algorithm.h"
#include "base/bytes.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// SACK: selective acknowledgement from a Verbena responder to a Verbena requester. It lists the packets that
// arrived after a missing one. An acknowledgement can only say "all before", a NAK only "not this one", so a
// requester learns of one gap per round trip (IBTA volume 1, 9.7.5.1.1). On a link that loses one packet in a
// hundred that is a hundred packets per round trip, whatever the link carries.
//
// The packet has a vendor opcode, one of those left to manufacturers (table 38): its top bits name no
// transport service, and adapters drop it (9.6.1.2). Linux rxe before 5.16 checks the PSN instead, and takes
// an unknown opcode with an outstanding PSN for an error of the QP. So the packet has a PSN from the distant
// past (kPast), which every requester ignores. Nothing depends on SACKs: acknowledgements are sent as usual,
// and NAKs to requesters that do not understand SACKs. To a requester that has confirmed no SACK, a responder
// sends kMaxUnheard SACKs, and then only a few. Once the requester has confirmed one, the responder sends
// SACKs and no NAKs. The requester confirms again for each NAK of a responder that has sent SACKs.
//
// The payload is a PSN and up to kMax ranges. Each range is two 32-bit words: the distance of its first PSN
// from the payload's PSN, and its number of PSNs. Everything between ranges is missing. The payload's PSN is
// the first that has not arrived. (In XRC this PSN may go back, if the process that owns a queue was not
// ready for a packet.) If one packet has no room for all ranges, the next one continues: its PSN is where the
// previous packet ended, and the highest bit of that word is set. The seven bits between that bit and the PSN
// report other senders to the same process (incast.h).
struct Sack {
  static constexpr uint32_t kMax = 127;
  static constexpr uint32_t kRangeBytes = 8;
  static constexpr uint32_t kMaxBytes = 4 + kMax * kRangeBytes;
  static constexpr uint32_t kPast = 1u << 22;  // distance of the packet's PSN behind the current one
  static constexpr uint32_t kMaxPackets = 16;  // for one report
  static constexpr uint32_t kContinues = 1u << 31;
  // Max ranges in a packet whose payload has at most `mtu` bytes.
  static uint32_t max_at(uint32_t mtu) { return std::min(kMax, (mtu - 4) / kRangeBytes); }
  // Max SACKs to a requester that has confirmed none. After that one SACK per kGapsUnheard gaps, as all SACKs
  // or confirmations may have been lost: an overflowing queue drops everything for a while.
  static constexpr uint32_t kMaxUnheard = 8;
  static constexpr uint32_t kGapsUnheard = 16;

  struct Range {
    roce::Psn first;
    uint32_t count;
  };

  // Parses a packet's payload. Stops at the first invalid range; a payload without a PSN gives no ranges.
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
