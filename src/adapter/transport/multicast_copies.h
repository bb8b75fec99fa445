// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Of a datagram to a multicast group that comes twice, by memory and by the wire, tells which copy is the
// first: each may be ahead of the other, and each may be missing. The two have their sender's QPN and PSN.
//
// A sender is remembered with its last so many packets, which are more than can wait in a socket. What is
// older is not a late copy: the sender has begun again. Pure; for the shard's lock holder.
class MulticastCopies {
 public:
  static constexpr uint32_t kWindow = 1 << 15;
  static constexpr size_t kMaxSenders = 64;
  // One that has not been heard for so long makes room for another.
  static constexpr Duration kForgottenAfter = std::chrono::seconds(10);

  enum class Way : uint8_t { kMemory, kWire };

  // Whether copies of this sender's may have come by memory.
  bool knows(roce::Qpn sender) const;
  // Whether a copy of this packet is the one to be taken. What comes by memory of one sender too many is not:
  // its other copy is.
  bool is_first(Way way, roce::Qpn sender, roce::Psn psn, TimePoint now);

 private:
  struct Sender {
    roce::Qpn qpn;
    roce::Psn newest;
    TimePoint heard;
    // Packets of which one copy has come, and by which way. One per packet at most.
    std::bitset<kWindow> by_memory;
    std::bitset<kWindow> by_wire;
  };
  Sender* find(roce::Qpn qpn, roce::Psn psn, TimePoint now);
  static void advance(Sender& sender, roce::Psn psn);

  std::vector<std::unique_ptr<Sender>> senders_;
};

}  // namespace verbena::transport
