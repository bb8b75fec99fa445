// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"
#include "control/protocol/trace_ring.h"
#include "wire/roce/qpn.h"

namespace verbena::trace {

using Kind = protocol::TraceKind;

// The writing end of a slot's rings: what happens to the slot's QPs goes in, the oldest goes out. Takes no
// lock, makes no system call and allocates nothing; readers, in other processes, are not waited for.
//
// For the shard's lock holder.
class Recorder {
 public:
  using Clock = TimePoint (*)();
  using Numbers = std::array<uint64_t, protocol::kTraceNumbers>;

  // Goes on behind what is in the rings already, if anything is.
  explicit Recorder(protocol::TraceRings& rings, Clock clock = MonotonicClock::now);

  // What is rare.
  void note(roce::Qpn qpn, Kind kind, const Numbers& numbers = {}) {
    put(rings_.events, written_, qpn, kind, numbers);
  }
  // What a bad network or a bad peer can make frequent: so many of a kind in a second, and how many were left
  // out. What else has happened is not driven out of the ring by it.
  void note_frequent(roce::Qpn qpn, Kind kind, const Numbers& numbers = {});
  // Each request and packet. REQUIRES: somebody wants them
  void detail(roce::Qpn qpn, Kind kind, const Numbers& numbers = {}) {
    put(rings_.details, details_written_, qpn, kind, numbers);
  }

  static constexpr uint32_t kMaxInSecond = 32;

 private:
  struct Frequent {
    TimePoint since{};
    uint32_t written = 0;
    uint32_t left_out = 0;
  };

  void put(protocol::TraceRing& ring, uint64_t& written, roce::Qpn qpn, Kind kind, const Numbers& numbers);

  protocol::TraceRings& rings_;
  const Clock clock_;
  uint64_t written_;
  uint64_t details_written_;
  std::array<Frequent, static_cast<size_t>(Kind::kRareEnd)> frequent_{};
};

}  // namespace verbena::trace
