// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/recorder.h"

#include <chrono>

namespace verbena::trace {

using protocol::TraceEntry;
using protocol::TraceRing;
using protocol::TraceRings;

Recorder::Recorder(TraceRings& rings, Clock clock)
    : rings_(rings),
      clock_(clock),
      written_(rings.events.written.load(std::memory_order_relaxed)),
      details_written_(rings.details.written.load(std::memory_order_relaxed)) {
  rings_.magic.store(TraceRings::kMagic, std::memory_order_relaxed);
}

// Readers detect that an entry was overwritten: the sequence number is cleared first, and every other word is
// stored with release order after it. (On x86 that costs no more than a plain store.)
void Recorder::put(TraceRing& ring, uint64_t& written, roce::Qpn qpn, Kind kind, const Numbers& numbers) {
  TraceEntry& entry = ring.entries[written % protocol::kTraceEntries];
  const uint64_t sequence = ++written;
  const auto time = static_cast<uint64_t>(clock_().time_since_epoch().count());
  const uint64_t what = uint64_t{qpn.value()} | static_cast<uint64_t>(kind) << 32;
  uint64_t check = sequence ^ time ^ what;
  entry.sequence.store(0, std::memory_order_relaxed);
  entry.time.store(time, std::memory_order_release);
  entry.what.store(what, std::memory_order_release);
  for (size_t i = 0; i < numbers.size(); ++i) {
    entry.numbers[i].store(numbers[i], std::memory_order_release);
    check ^= numbers[i];
  }
  entry.check.store(check, std::memory_order_release);
  entry.sequence.store(sequence, std::memory_order_release);
  ring.written.store(sequence, std::memory_order_release);
}

void Recorder::note_frequent(roce::Qpn qpn, Kind kind, const Numbers& numbers) {
  Frequent& frequent = frequent_[static_cast<size_t>(kind)];
  const TimePoint now = clock_();
  if (now - frequent.since >= std::chrono::seconds(1)) {
    if (frequent.left_out > 0) {
      note(qpn, Kind::kLeftOut, {static_cast<uint64_t>(kind), frequent.left_out});
    }
    frequent = {.since = now};
  }
  if (frequent.written == kMaxInSecond) {
    ++frequent.left_out;
    return;
  }
  ++frequent.written;
  note(qpn, kind, numbers);
}

}  // namespace verbena::trace
