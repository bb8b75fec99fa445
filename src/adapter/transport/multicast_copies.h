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

// Recognizes duplicates of multicast datagrams, which may arrive twice: over shared memory and over the wire.
// Either copy may be first, and either may be missing. Copies have the same sender QPN and PSN.
//
// Remembers the last kWindow packets of each sender, more than can wait in a socket. An older packet is
// therefore no late copy: the sender has started again. Pure; for the shard's lock holder.
class MulticastCopies {
 public:
  static constexpr uint32_t kWindow = 1 << 15;
  static constexpr size_t kMaxSenders = 64;
  // A sender that was silent for this long makes room for another.
  static constexpr Duration kForgottenAfter = std::chrono::seconds(10);

  enum class Way : uint8_t { kMemory, kWire };

  // Whether this sender is remembered, so that copies from it may have come over shared memory.
  bool knows(roce::Qpn sender) const;
  // Notes that a copy of a packet has come, and returns whether to deliver it: it is the first one. For
  // senders beyond kMaxSenders, delivers only the copy from the wire.
  bool is_first(Way way, roce::Qpn sender, roce::Psn psn, TimePoint now);

 private:
  struct Sender {
    roce::Qpn qpn;
    roce::Psn newest;
    TimePoint heard;
    // Packets of which one copy has come, by its route. A packet has at most one bit.
    std::bitset<kWindow> by_memory;
    std::bitset<kWindow> by_wire;
  };
  Sender* find(roce::Qpn qpn, roce::Psn psn, TimePoint now);
  static void advance(Sender& sender, roce::Psn psn);

  std::vector<std::unique_ptr<Sender>> senders_;
};

}  // namespace verbena::transport
