// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/time.h"
#include "control/protocol/trace_ring.h"
#include "wire/roce/qpn.h"

namespace verbena::trace {

using Kind = protocol::TraceKind;

// The writing end of a slot's trace rings: records events of its QPs, overwriting the oldest. Takes no lock,
// makes no system call and allocates nothing; never waits for readers in other processes.
//
// REQUIRES: the caller holds the shard's lock
class Recorder {
 public:
  using Clock = TimePoint (*)();
  using Numbers = std::array<uint64_t, protocol::kTraceNumbers>;

  // Continues after the existing entries of the rings.
  explicit Recorder(protocol::TraceRings& rings, Clock clock = MonotonicClock::now);

  // Records a rare event in the ring of events, without a limit.
  void note(roce::Qpn qpn, Kind kind, const Numbers& numbers = {}) {
    put(rings_.events, written_, qpn, kind, numbers);
  }
  // Records an event that a bad network or peer can make frequent. Records at most kMaxInSecond events per
  // kind and second, so that they do not overwrite all other events. If events were left out, a kLeftOut
  // event with their number is recorded later, before the first event of this kind after that second.
  void note_frequent(roce::Qpn qpn, Kind kind, const Numbers& numbers = {});
  // Records a request or packet in the ring of details. REQUIRES: a reader has requested details
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
