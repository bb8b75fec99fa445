// SPDX-License-Identifier: Apache-2.0
// A process that writes arbitrary values into the rings of its trace, also during a read. Promises: the agent
// copies a limited part of them, and `verbena trace` reads at most as many events as fit, in the order of
// time. Each event is printed as one line without a character that a terminal would obey, and as valid JSON.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/status/kept_traces.h"
#include "base/unique_fd.h"
#include "commands/verbena/trace_lines.h"
#include "control/protocol/trace_ring.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "observe/trace/reader.h"

namespace verbena {
namespace {

using fuzz::Choices;
using protocol::TraceEntry;
using protocol::TraceRing;
using protocol::TraceRings;
using trace::Event;
using Words = std::array<uint64_t, protocol::kTraceWords>;

constexpr size_t kMaxEvents = 2 * protocol::kTraceEntries;

// The trace file that the process has mapped and others read. The same file for all inputs, cleared before
// each.
class HostileRings {
 public:
  HostileRings() : file_(::memfd_create("trace-fuzz", MFD_CLOEXEC)) {
    VERBENA_REQUIRE(::ftruncate(file_.get(), sizeof(TraceRings)) == 0);
    void* const at = ::mmap(nullptr, sizeof(TraceRings), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    VERBENA_REQUIRE(at != MAP_FAILED);
    rings_ = static_cast<TraceRings*>(at);
  }

  int fd() const { return file_.get(); }
  void clear() {
    VERBENA_REQUIRE(::madvise(rings_, sizeof(TraceRings), MADV_REMOVE) == 0);
    rings_->magic = TraceRings::kMagic;
  }

  // Lets the process do one write.
  void write(Choices& choices) {
    TraceRing& ring = choices.yes() ? rings_->details : rings_->events;
    switch (choices.below(8)) {
      case 0:
        ring.written = choices.number<uint64_t>();
        break;
      case 1:
        ring.written = choices.number<uint16_t>();
        break;
      case 2:
        rings_->magic = choices.yes() ? TraceRings::kMagic : choices.number<uint64_t>();
        break;
      case 3: {
        auto* const bytes = reinterpret_cast<std::byte*>(&ring);
        const ConstBytes any = choices.bytes(choices.below(64));
        const size_t place = choices.number<uint32_t>() % (sizeof ring - 64);
        if (!any.empty()) std::memcpy(bytes + place, any.data(), any.size());
        break;
      }
      default:
        put_whole_event(ring, choices);
    }
  }

 private:
  // Writes an event as a recorder does, but with arbitrary contents.
  static void put_whole_event(TraceRing& ring, Choices& choices) {
    const uint64_t number = ring.written;
    Words words{};
    words[0] = number + 1;
    words[1] = choices.yes() ? choices.number<uint64_t>() : choices.number<uint32_t>();
    words[2] = choices.number<uint32_t>() & 0xffffff;
    words[2] |= uint64_t{choices.byte()} << 32;
    for (size_t i = 0; i < protocol::kTraceNumbers; ++i) {
      words[3 + i] = choices.yes() ? choices.number<uint64_t>() : choices.byte();
    }
    for (size_t i = 0; i + 1 < words.size(); ++i) words.back() ^= words[i];
    std::memcpy(static_cast<void*>(&ring.entries[number % protocol::kTraceEntries]), words.data(),
                sizeof words);
    ring.written = number + 1;
  }

  UniqueFd file_;
  TraceRings* rings_ = nullptr;
};

void check(const std::vector<Event>& events, bool in_order) {
  VERBENA_REQUIRE(events.size() <= kMaxEvents);
  TimePoint before = TimePoint::min();
  for (const Event& event : events) {
    VERBENA_REQUIRE(!in_order || before <= event.time);
    before = event.time;
    commands::TraceStyle style;
    std::string line = commands::line_of(event, 4711, style);
    VERBENA_REQUIRE(line.ends_with('\n'));
    line.pop_back();
    for (const char c : line) VERBENA_REQUIRE(static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
    style.json = style.wall_clock = true;
    VERBENA_REQUIRE(nlohmann::json::accept(commands::line_of(event, 4711, style)));
    trace::is_trouble(event);
  }
}

void check_copy(int file) {
  const auto copy = agent::copy_rings(file, 0);
  if (!copy) return;
  VERBENA_REQUIRE(copy->bytes <= sizeof(TraceRings));
  trace::Reader reader(copy->file.get(), 0);
  check(reader.read(), true);
  VERBENA_REQUIRE(reader.read().empty());  // the copy does not change
}

}  // namespace
}  // namespace verbena

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena;
  static HostileRings rings;
  Choices choices(data, size);
  rings.clear();
  trace::Reader reader(rings.fd(), 0);
  while (!choices.empty()) {
    for (uint32_t left = choices.below(8); left > 0; --left) rings.write(choices);
    if (choices.yes()) {
      check(reader.read(), true);
    } else {
      check(reader.read_rare(), false);
    }
  }
  check_copy(rings.fd());
  return 0;
}
