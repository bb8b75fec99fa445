// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/top_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace verbena::commands {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

control::QpNumbers qp(uint32_t number, uint64_t bytes) {
  control::QpNumbers numbers{.qpn = number, .type = IBV_QPT_RC, .state = IBV_QPS_RTS, .device_index = 3};
  numbers.counters[transport::kSentBytes] = bytes;
  return numbers;
}

control::AgentStatus example(uint64_t first, uint64_t second) {
  control::Link link{.name = "rxe0", .device_index = 3, .netdev = "eth0"};
  control::DeviceCounters counters;
  counters[transport::kSentBytes] = first + second;
  control::SlotStatus one{.index = 1, .pid = 11, .program = "first", .qps = {qp(17, first)}};
  control::SlotStatus other{.index = 2, .pid = 12, .program = "sec\x1bond", .qps = {qp(18, second)}};
  other.qps[0].details[protocol::kQpWaitingSends] = 7;
  return {.version = "1", .no_wire_reason = "", .links = {{link, "up", counters}}, .slots = {one, other}};
}

std::vector<std::string> lines(const TopSettings& settings, double seconds = 2) {
  return top_lines(example(1000, 1000), example(3000, 2'001'000), seconds, settings);
}

TEST(Top, ShowsRatesOfProcessesTheLargestFirst) {
  EXPECT_THAT(lines({}), ElementsAre(MatchesRegex("PID +USER +PROGRAM +QPS +SENT B/s.*"),
                                     MatchesRegex("12 .*sec\\?ond +1 +1\\.0M +0 .* 7 +0"),
                                     MatchesRegex("11 .*first +1 +1\\.0k +0 .*")));
}

TEST(Top, SortsAndFilters) {
  EXPECT_THAT(lines({.reversed = true, .filter = {}})[1], HasSubstr("first"));
  EXPECT_THAT(lines({.order = TopOrder::kWaiting, .filter = {}})[1], HasSubstr("12"));
  EXPECT_THAT(lines({.filter = "irs"}), SizeIs(2));
  EXPECT_THAT(lines({.filter = "nobody"}), SizeIs(1));
}

TEST(Top, ShowsQueuePairsAndLinks) {
  EXPECT_THAT(lines({.view = TopView::kQueuePairs, .filter = {}})[1],
              MatchesRegex("0x000012 +RC +RTS +rxe0 +wire +12 .*1\\.0M.*"));
  EXPECT_THAT(lines({.view = TopView::kLinks, .filter = {}})[1], MatchesRegex("rxe0 +eth0 +up +2 +1\\.0M.*"));
}

TEST(Top, AQueuePairThatIsNewCountsFromItsBeginning) {
  auto before = example(1000, 1000);
  before.slots.clear();
  EXPECT_THAT(top_lines(before, example(4000, 0), 1, {})[1], HasSubstr("4.0k"));
  // A smaller value than before means a new object.
  EXPECT_THAT(top_lines(example(9000, 0), example(4000, 0), 1, {})[1], HasSubstr("4.0k"));
}

TEST(Top, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(1000), "1.0k");
  EXPECT_EQ(short_number(37'400), "37k");
  EXPECT_EQ(short_number(1.5e9), "1.5G");
  EXPECT_EQ(short_number(9.99e20), "999E");
}

}  // namespace
}  // namespace verbena::commands
