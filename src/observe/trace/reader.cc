// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <infiniband/verbs.h>
#include <unistd.h>

#include "observe/trace/connection_note.h"
#include "wire/roce/aeth.h"

namespace verbena::trace {
namespace {

using protocol::kTraceEntries;
using protocol::TraceEntry;
using protocol::TraceRing;
using Words = std::array<uint64_t, protocol::kTraceWords>;
static_assert(sizeof(Words) == sizeof(TraceEntry));

constexpr size_t kEntriesPerRead = 512;

constexpr bool is_known(Kind kind) {
  return (kind > Kind::kNone && kind < Kind::kRareEnd) || (kind >= Kind::kPosted && kind < Kind::kDetailEnd);
}

constexpr uint64_t word_at(const Words& words, size_t byte_offset) {
  return words[byte_offset / 8];
}

// Parses the event with this number. Nothing if the entry holds another event, is being written, or is
// invalid.
std::optional<Event> event_of(const Words& words, uint64_t number) {
  uint64_t all = 0;
  for (const uint64_t word : words) all ^= word;
  if (all != 0 || word_at(words, offsetof(TraceEntry, sequence)) != number + 1) return std::nullopt;
  const uint64_t what = word_at(words, offsetof(TraceEntry, what));
  const uint64_t time = word_at(words, offsetof(TraceEntry, time));
  const auto kind = static_cast<Kind>(what >> 32 & 0xff);
  if (!is_known(kind) || what >> 40 != 0 || time > INT64_MAX) return std::nullopt;
  Event event;
  event.time = TimePoint(Duration(static_cast<int64_t>(time)));
  event.qpn = static_cast<uint32_t>(what & 0xffffff);
  event.kind = kind;
  std::copy_n(&words[offsetof(TraceEntry, numbers) / 8], event.numbers.size(), event.numbers.begin());
  return event;
}

}  // namespace

bool is_trouble(const Event& event) {
  switch (event.kind) {
    case Kind::kTimeout:
    case Kind::kRefused:
    case Kind::kSendFailed:
    case Kind::kReceiveFailed:
    case Kind::kCqOverrun:
      return true;
    case Kind::kNakReceived:
    case Kind::kNakSent:
      return roce::aeth_kind(static_cast<uint8_t>(event.numbers[1])) == roce::AethKind::kNak;
    case Kind::kState:
      return event.numbers[2] != static_cast<uint64_t>(protocol::TraceCause::kAsked);
    default:
      return is_connection_failure(event.kind, event.numbers);
  }
}

bool Reader::read_at(void* to, size_t bytes, size_t offset) const {
  return ::pread(file_, to, bytes, static_cast<off_t>(offset_ + offset)) == static_cast<ssize_t>(bytes);
}

bool Reader::has_rings() const {
  uint64_t magic = 0;
  return read_at(&magic, sizeof magic, offsetof(protocol::TraceRings, magic)) &&
         magic == protocol::TraceRings::kMagic;
}

uint64_t Reader::written(const Ring& ring) const {
  uint64_t written = 0;
  return read_at(&written, sizeof written, ring.offset + offsetof(TraceRing, written)) ? written : 0;
}

std::vector<Event> Reader::read() {
  std::vector<Event> events;
  if (!has_rings()) return events;
  read_ring(events_, events);
  read_ring(details_, events);
  std::ranges::stable_sort(events, {}, &Event::time);
  return events;
}

std::vector<Event> Reader::read_rare() {
  std::vector<Event> events;
  if (has_rings()) read_ring(events_, events);
  return events;
}

// Ignores a counter that has decreased, which a correct writer never does.
void Reader::read_ring(Ring& ring, std::vector<Event>& events) {
  const uint64_t end = written(ring);
  const bool had_begun = std::exchange(ring.is_begun, true);
  if (end > INT64_MAX || end <= ring.taken) return;
  const uint64_t oldest = end - std::min<uint64_t>(end, kTraceEntries);
  const uint64_t first = std::max(ring.taken, oldest);
  const size_t whole = take(ring, first, end, events);
  if (had_begun) missed_ += end - ring.taken - whole;
  ring.taken = end;
}

// Reads the events [first, end) that still exist, and returns their number.
size_t Reader::take(const Ring& ring, uint64_t first, uint64_t end, std::vector<Event>& events) const {
  const size_t before = events.size();
  std::array<Words, kEntriesPerRead> some;
  for (uint64_t at = first; at < end;) {
    const size_t place = at % kTraceEntries;
    const size_t count = std::min<uint64_t>({end - at, kTraceEntries - place, kEntriesPerRead});
    const size_t offset = ring.offset + offsetof(TraceRing, entries) + place * sizeof(TraceEntry);
    if (!read_at(some.data(), count * sizeof(TraceEntry), offset)) break;
    for (size_t i = 0; i < count; ++i) {
      if (const auto event = event_of(some[i], at + i)) events.push_back(*event);
    }
    at += count;
  }
  return events.size() - before;
}

}  // namespace verbena::trace
