// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/trace_lines.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "observe/trace/event_words.h"

namespace verbena::commands {
namespace {

using testing::EndsWith;
using testing::StartsWith;
using trace::Event;
using trace::Kind;

constexpr TimePoint kNow{std::chrono::seconds(1000)};

Event event_at(Duration before, uint32_t qpn = 0x11) {
  return {.time = kNow - before, .qpn = qpn, .kind = Kind::kProbe, .numbers = {}};
}

TEST(TraceChoice, TakesAQueuePairATimeAndANumber) {
  using std::chrono::seconds;
  const std::vector<Event> events = {event_at(seconds(9)), event_at(seconds(8), 0x12), event_at(seconds(3)),
                                     event_at(seconds(2), 0x12), event_at(seconds(1))};
  EXPECT_EQ(chosen(events, {}, kNow).size(), 5u);
  EXPECT_EQ(chosen(events, {.qpn = 0x12}, kNow).size(), 2u);
  EXPECT_EQ(chosen(events, {.since = seconds(3)}, kNow).size(), 3u);
  EXPECT_EQ(chosen(events, {.last = 9}, kNow).size(), 5u);
  const auto both = chosen(events, {.qpn = 0x11, .last = 1}, kNow);
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].time, kNow - seconds(1)) << "the latest";
}

TEST(TraceLine, TellsTheTimeFromTheReferenceAndTheQueuePair) {
  const std::string line = line_of(event_at(std::chrono::milliseconds(250)), 1, {.reference = kNow});
  EXPECT_THAT(line, StartsWith("     -0.250000  QP 0x000011  tail-loss probe"));
  EXPECT_THAT(line, EndsWith("\n"));
}

TEST(TraceLine, TellsTheTimeOfTheWall) {
  const std::string line = line_of(event_at(Duration::zero()), 1, {.wall_clock = true, .reference = kNow});
  EXPECT_THAT(line, testing::MatchesRegex("1970-01-0[12] [0-9:]+\\.000000  QP .*\n"));
}

TEST(TraceLine, IsAnObjectOfJsonWhateverTheEvent) {
  Random random(1);
  for (int number = 1; number < 256; ++number) {
    const auto kind = static_cast<Kind>(number);
    if (trace::name_of(kind) == "unknown") continue;
    Event event{.time = TimePoint(Duration(INT64_MAX)), .qpn = 0xffffff, .kind = kind, .numbers = {}};
    for (uint64_t& each : event.numbers) each = random.next();
    const std::string line =
        line_of(event, 4711, {.json = true, .reference = kNow, .to_wall_clock = Duration(1)});
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object["pid"], 4711);
    EXPECT_EQ(object["event"], trace::name_of(kind));
    EXPECT_EQ(object["text"], trace::words_of(event));
    for (const trace::Field& field : trace::fields_of(kind)) {
      const uint64_t value = field.of(event);
      if (field.is_signed) {
        EXPECT_EQ(object[std::string(field.name)], static_cast<int32_t>(value));
      } else {
        EXPECT_EQ(object[std::string(field.name)], value);
      }
    }
  }
}

TEST(TraceLine, OfATimeThatNoCalendarHasIsWritten) {
  const Event event{.time = TimePoint(Duration(INT64_MAX)), .qpn = 1, .kind = Kind::kQpMade, .numbers = {}};
  const auto style =
      TraceStyle{.wall_clock = true, .reference = kNow, .to_wall_clock = std::chrono::hours(1)};
  EXPECT_THAT(line_of(event, 1, style), EndsWith("\n"));
}

TEST(TraceList, SaysWhoseTracesThereAre) {
  EXPECT_THAT(TraceList().as_text(kNow), StartsWith("No program"));
  std::vector<control::TraceSource> sources(3);
  sources[0].pid = sources[1].pid = 4711;
  sources[0].program = "ib_write_bw";
  sources[2].pid = 4712;
  sources[2].program = "\"\xff";
  sources[2].end = control::TraceSource::End{.process = 1, .time = kNow - std::chrono::seconds(5)};
  TraceList list;
  for (const control::TraceSource& source : sources) list.add(source);
  const std::string text = list.as_text(kNow);
  EXPECT_THAT(text, testing::HasSubstr("4711  ib_write_bw"));
  EXPECT_THAT(text, testing::HasSubstr("ended 5 s ago"));
  const std::string lines = list.as_json(kNow);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2) << "two slots of one process are one";
  EXPECT_EQ(nlohmann::json::parse(lines.substr(0, lines.find('\n')))["runs"], true);
}

}  // namespace
}  // namespace verbena::commands
