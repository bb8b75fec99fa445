// SPDX-License-Identifier: Apache-2.0
// Events through a ring come out unchanged and in order. Overwritten events are not mixed with newer ones.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>

#include "observe/trace/ring_file.h"

namespace verbena::trace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr roce::Qpn kQpn(0x11);
TimePoint now_of_test{};
TimePoint test_clock() {
  return now_of_test;
}

class Ring : public testing::Test {
 protected:
  void SetUp() override { now_of_test = TimePoint(seconds(100)); }
  RingFile file;
  Recorder recorder{file.rings(), test_clock};
  Reader reader = file.reader();
};

TEST_F(Ring, AnEventArrivesWithTimeQpKindAndNumbers) {
  recorder.note(kQpn, Kind::kTimeout, {1, 2, 3, 4});
  const auto events = reader.read();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].time, now_of_test);
  EXPECT_EQ(events[0].qpn, kQpn.value());
  EXPECT_EQ(events[0].kind, Kind::kTimeout);
  EXPECT_EQ(events[0].numbers, (Recorder::Numbers{1, 2, 3, 4}));
  EXPECT_TRUE(reader.read().empty()) << "it is not new any more";
}

TEST_F(Ring, DetailsAreAmongTheEventsByTime) {
  recorder.note(kQpn, Kind::kQpMade);
  now_of_test += milliseconds(1);
  recorder.detail(kQpn, Kind::kPacketSent);
  now_of_test += milliseconds(1);
  recorder.note(kQpn, Kind::kQpDestroyed);
  const auto events = reader.read();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].kind, Kind::kPacketSent);
  EXPECT_EQ(file.reader().read_rare().size(), 2u);
}

TEST_F(Ring, AFloodOfDetailsDoesNotDriveOutWhatIsRare) {
  recorder.note(kQpn, Kind::kSendFailed);
  for (size_t i = 0; i < 3 * protocol::kTraceEntries; ++i) recorder.detail(kQpn, Kind::kPosted, {0, i});
  const auto events = reader.read();
  ASSERT_EQ(events.size(), 1 + protocol::kTraceEntries);
  EXPECT_EQ(events.front().kind, Kind::kSendFailed);
  EXPECT_EQ(events.back().numbers[1], 3 * protocol::kTraceEntries - 1);
}

TEST_F(Ring, WhatWasOverwrittenBetweenTwoLooksIsCounted) {
  recorder.note(kQpn, Kind::kProbe);
  reader.read();
  for (size_t i = 0; i < protocol::kTraceEntries + 10; ++i) recorder.note(kQpn, Kind::kProbe, {i});
  EXPECT_EQ(reader.read().size(), protocol::kTraceEntries);
  EXPECT_EQ(reader.missed(), 10u);
}

TEST_F(Ring, WhatWasOverwrittenAfterALookAtAnEmptyRingIsCounted) {
  EXPECT_TRUE(reader.read().empty());
  for (size_t i = 0; i < protocol::kTraceEntries + 10; ++i) recorder.note(kQpn, Kind::kProbe, {i});
  EXPECT_EQ(reader.read().size(), protocol::kTraceEntries);
  EXPECT_EQ(reader.missed(), 10u);
}

TEST_F(Ring, WhatWasGoneBeforeTheFirstLookIsNotMissed) {
  for (size_t i = 0; i < 2 * protocol::kTraceEntries; ++i) recorder.note(kQpn, Kind::kProbe, {i});
  EXPECT_EQ(reader.read().size(), protocol::kTraceEntries);
  EXPECT_EQ(reader.missed(), 0u);
}

TEST_F(Ring, WhatANetworkMakesFrequentIsWrittenSoOftenInASecondAndThenCounted) {
  for (int i = 0; i < 1000; ++i) recorder.note_frequent(kQpn, Kind::kLost);
  recorder.note_frequent(kQpn, Kind::kDuplicate);
  EXPECT_EQ(reader.read().size(), Recorder::kMaxInSecond + 1) << "the limit is per kind";
  now_of_test += seconds(1);
  recorder.note_frequent(kQpn, Kind::kLost);
  const auto events = reader.read();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Kind::kLeftOut);
  EXPECT_EQ(events[0].numbers[0], static_cast<uint64_t>(Kind::kLost));
  EXPECT_EQ(events[0].numbers[1], 1000 - Recorder::kMaxInSecond);
  EXPECT_EQ(events[1].kind, Kind::kLost);
}

TEST_F(Ring, ARecorderThatComesLaterGoesOnBehindWhatIsThere) {
  recorder.note(kQpn, Kind::kQpMade);
  Recorder later(file.rings(), test_clock);
  later.note(kQpn, Kind::kQpDestroyed);
  EXPECT_EQ(reader.read().size(), 2u);
}

TEST_F(Ring, AnEventThatIsBeingWrittenIsLeftOut) {
  recorder.note(kQpn, Kind::kProbe, {1});
  recorder.note(kQpn, Kind::kProbe, {2});
  file.rings().events.entries[0].sequence = 0;
  const auto events = reader.read();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].numbers[0], 2u);
}

TEST_F(Ring, AnEventOfTwoHalvesIsLeftOut) {
  recorder.note(kQpn, Kind::kProbe, {1});
  recorder.note(kQpn, Kind::kProbe, {2});
  file.rings().events.entries[1].numbers[3] = 7;
  EXPECT_EQ(reader.read().size(), 1u);
}

TEST_F(Ring, RingsThatNobodyHasBegunHaveNothing) {
  const RingFile untouched;
  EXPECT_FALSE(untouched.reader().has_rings());
  EXPECT_TRUE(untouched.reader().read().empty());
}

// Whether the event is one of those that the writer below writes.
bool is_whole(const Event& event) {
  const auto& n = event.numbers;
  return event.kind == Kind::kPosted && n[1] == n[0] * 3 && n[2] == ~n[0] && n[3] == n[0] + 1;
}

TEST(RingThreads, ReadersBesideAWriterSeeWholeEventsInOrderOrNone) {
  RingFile file;
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> written{0};
  std::thread writer([&] {
    Recorder recorder(file.rings());
    for (uint64_t i = 0; !ends; ++i) {
      recorder.detail(kQpn, Kind::kPosted, {i, i * 3, ~i, i + 1});
      written = i + 1;
    }
  });
  const auto read = [&] {
    Reader reader = file.reader();
    uint64_t seen = 0;
    uint64_t next = 0;
    while (seen < 100'000) {
      for (const Event& event : reader.read()) {
        ASSERT_TRUE(is_whole(event));
        ASSERT_GE(event.numbers[0], next);
        next = event.numbers[0] + 1;
        ++seen;
      }
    }
    ASSERT_LE(seen + reader.missed(), written + protocol::kTraceEntries);
  };
  std::thread other(read);
  read();
  other.join();
  ends = true;
  writer.join();
}

}  // namespace
}  // namespace verbena::trace
