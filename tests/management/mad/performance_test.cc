// SPDX-License-Identifier: Apache-2.0
#include "management/mad/performance.h"

#include <gtest/gtest.h>

#include "management/mad/example_subnet.h"

namespace verbena::mad {
namespace {

constexpr uint16_t kCounters = 0x0012, kExtended = 0x001d;
constexpr size_t kDataAt = 64;
constexpr uint8_t kPort = 1;

Mad ask(uint16_t attribute, uint8_t method = kMethodGet, uint16_t selected = 0, uint8_t port = kPort) {
  Mad mad = request(kClassPerformance, method, attribute);
  mad.set_u8(kDataAt + 1, port);
  mad.set(kDataAt + 2, selected);
  return mad;
}

PortCounters example() {
  PortCounters counters;
  counters.sent_words = 0x1'0000'0010;
  counters.received_words = 7;
  counters.sent_packets = 5;
  counters.link_downed = 300;
  return counters;
}

TEST(Performance, StopsAtTheHighestValueOfAField) {
  Performance performance;
  const Mad answer = performance.answer(ask(kCounters), kPort, example(), false);
  EXPECT_EQ(status_of(answer), MadStatus::kSuccess);
  EXPECT_EQ(answer.get<uint32_t>(kDataAt + 24), 0xffffffffU);
  EXPECT_EQ(answer.get<uint32_t>(kDataAt + 28), 7U);
  EXPECT_EQ(answer.u8(kDataAt + 6), 0xff);
}

TEST(Performance, GivesAllOfItInExtendedCounters) {
  Performance performance;
  const Mad answer = performance.answer(ask(kExtended), kPort, example(), false);
  EXPECT_EQ(answer.get<uint64_t>(kDataAt + 8), 0x1'0000'0010U);
  EXPECT_EQ(answer.get<uint64_t>(kDataAt + 24), 5U);
}

TEST(Performance, CountsFromWhereItWasSetToZero) {
  Performance performance;
  PortCounters counters = example();
  performance.answer(ask(kExtended, kMethodSet, 1u << 2), kPort, counters, true);
  counters.sent_packets += 3;
  const Mad answer = performance.answer(ask(kExtended), kPort, counters, true);
  EXPECT_EQ(answer.get<uint64_t>(kDataAt + 24), 3U);
  EXPECT_EQ(answer.get<uint64_t>(kDataAt + 16), 7U);  // not selected, so not reset
  EXPECT_EQ(performance.answer(ask(kCounters), kPort, counters, true).get<uint32_t>(kDataAt + 32), 8U);
}

TEST(Performance, LetsStrangersSetNothing) {
  Performance performance;
  const Mad answer = performance.answer(ask(kCounters, kMethodSet, 0xffff), kPort, example(), false);
  EXPECT_EQ(status_of(answer), MadStatus::kUnsupportedAttribute);
  EXPECT_EQ(performance.answer(ask(kCounters), kPort, example(), false).get<uint32_t>(kDataAt + 32), 5U);
}

TEST(Performance, KnowsItsPortOnly) {
  Performance performance;
  const auto status = [&](uint8_t port) {
    return status_of(performance.answer(ask(kCounters, kMethodGet, 0, port), kPort, example(), false));
  };
  EXPECT_EQ(status(2), MadStatus::kInvalidValue);
  EXPECT_EQ(status(0xff), MadStatus::kSuccess);
}

TEST(Performance, SaysThatThereAreExtendedCounters) {
  Performance performance;
  const Mad answer = performance.answer(ask(kAttributeClassPortInfo), kPort, example(), false);
  EXPECT_EQ(answer.get<uint16_t>(kDataAt + 2) & 0x200, 0x200);
}

TEST(Performance, SeesTheOtherEndTheOtherWayRound) {
  const PortCounters peer = example().seen_from_peer();
  EXPECT_EQ(peer.received_packets, 5U);
  EXPECT_EQ(peer.sent_words, 7U);
}

}  // namespace
}  // namespace verbena::mad
