// SPDX-License-Identifier: Apache-2.0
// Traces of processes that have ended: which are kept, and which are dropped first.
#include "agent/status/kept_traces.h"

#include <atomic>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <unistd.h>

#include "agent/status/traced_page.h"
#include "observe/trace/reader.h"

namespace verbena::agent {
namespace {

using testing::Contains;
using testing::Not;
using trace::Kind;

constexpr TimePoint kStart{std::chrono::hours(1)};

class KeptTracesTest : public testing::Test {
 protected:
  std::vector<pid_t> pids(TimePoint now = kStart) {
    std::vector<pid_t> all;
    uint64_t from = 0;
    while (const KeptTraces::Kept* one = kept.find(from, now)) {
      all.push_back(one->pid);
      from = one->number + 1;
    }
    return all;
  }
  ForeignCloser closer;
  KeptTraces kept{closer};
};

TEST_F(KeptTracesTest, WhatAProcessHasWrittenIsThereWhenItsPageIsGone) {
  {
    TracedPage page;
    page.write(Kind::kTimeout);
    page.write_details(3);
    keep_copy(kept, closer, slot_of(page, 1), false, kStart);
  }
  const KeptTraces::Kept* one = kept.find(0, kStart);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->program, "test");
  EXPECT_EQ(one->uid, 1000u);
  EXPECT_EQ(one->slot, 7u);
  const auto events = trace::Reader(one->file.get(), 0).read();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].kind, Kind::kTimeout);
  EXPECT_EQ(events[3].numbers[0], 2u);
}

// The process can make a reading of its page wait for any time.
TEST_F(KeptTracesTest, APageThatCannotBeReadHoldsUpNobody) {
  TracedPage stuck;
  stuck.write(Kind::kTimeout);
  std::atomic<bool> is_stuck = true;
  ASSERT_TRUE(closer.work_with(
      1000, stuck.fd(), [&](int) { is_stuck.wait(true); }, [] {}));
  kept.keep(slot_of(stuck, 1, 1000), false, kStart);
  keep_copy(kept, closer, slot_of(stuck, 2, 1001), false, kStart);
  EXPECT_THAT(pids(), testing::ElementsAre(2));
  is_stuck = false;
  is_stuck.notify_all();
  while (pids().size() < 2) take_copies(closer);
}

// The copies wait while their user pauses.
TEST_F(KeptTracesTest, NoMoreCopiesThanAreKeptWaitForTheirUser) {
  constexpr uid_t kPaused = 1000;
  TracedPage page;
  page.write(Kind::kTimeout);
  for (size_t i = 0; i < 2 * KeptTraces::kMaxTraces; ++i) kept.keep(slot_of(page, 1, kPaused), false, kStart);
  ASSERT_TRUE(test::becomes_true([&] { return closer.waiting(kPaused) == 0; }));
  std::vector<ForeignCloser::Done> copies = closer.take_closed();
  EXPECT_LT(copies.size(), KeptTraces::kMaxTraces);
  EXPECT_FALSE(copies.empty());
  copies.clear();
  keep_copy(kept, closer, slot_of(page, 2, kPaused), false, kStart);
  EXPECT_THAT(pids(), testing::ElementsAre(2)) << "those have had their turn";
}

TEST_F(KeptTracesTest, NobodyCanChangeACopy) {
  TracedPage page;
  page.write(Kind::kTimeout);
  keep_copy(kept, closer, slot_of(page, 1), false, kStart);
  const int file = kept.find(0, kStart)->file.get();
  EXPECT_LT(::pwrite(file, "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(file, 0), 0);
}

TEST_F(KeptTracesTest, AProcessThatHasWrittenNothingLeavesNothing) {
  const TracedPage page;
  keep_copy(kept, closer, slot_of(page, 1), false, kStart);
  EXPECT_EQ(kept.find(0, kStart), nullptr);
  EXPECT_FALSE(kept.has_notable());
}

TEST_F(KeptTracesTest, OfSixteenProcessesTheOldestGoesForTheNext) {
  TracedPage page;
  page.write(Kind::kTimeout);
  for (uint64_t session = 1; session <= 17; ++session)
    keep_copy(kept, closer, slot_of(page, session), false, kStart);
  EXPECT_EQ(pids().size(), KeptTraces::kMaxProcesses);
  EXPECT_THAT(pids(), Not(Contains(1)));
  EXPECT_THAT(pids(), Contains(17));
}

TEST_F(KeptTracesTest, WhatEndedWellGoesBeforeWhatDidNot) {
  TracedPage page;
  page.write(Kind::kQpMade);
  keep_copy(kept, closer, slot_of(page, 1), false, kStart);
  keep_copy(kept, closer, slot_of(page, 2), true, kStart);
  for (uint64_t session = 3; session <= 17; ++session)
    keep_copy(kept, closer, slot_of(page, session), false, kStart);
  EXPECT_THAT(pids(), Contains(1));
  EXPECT_THAT(pids(), Not(Contains(2)));
}

TEST_F(KeptTracesTest, OneUsersProgramsDoNotDriveOutAnothers) {
  TracedPage page;
  page.write(Kind::kTimeout);
  keep_copy(kept, closer, slot_of(page, 1, 1000), false, kStart);
  for (uint64_t session = 2; session <= 60; ++session)
    keep_copy(kept, closer, slot_of(page, session, 1001), false, kStart);
  EXPECT_THAT(pids(), Contains(1));
  EXPECT_EQ(pids().size(), KeptTraces::kMaxProcesses);
}

// One event each takes far fewer bytes than an honest trace.
TEST_F(KeptTracesTest, OneUsersManySmallTracesDoNotDriveOutAnothersLargeOne) {
  TracedPage small, large;
  small.write(Kind::kTimeout);
  large.write(Kind::kTimeout, protocol::kTraceEntries);
  for (uint64_t session = 1; session <= KeptTraces::kMaxProcesses; ++session)
    keep_copy(kept, closer, slot_of(small, session, 1001), false, kStart);
  keep_copy(kept, closer, slot_of(large, 60, 1000), false, kStart);
  EXPECT_THAT(pids(), Contains(60));
  EXPECT_THAT(pids(), Not(Contains(1)));
}

TEST_F(KeptTracesTest, OfUsersWithEquallyManyTheOldestGoes) {
  TracedPage small, large;
  small.write(Kind::kTimeout);
  large.write(Kind::kTimeout, protocol::kTraceEntries);
  keep_copy(kept, closer, slot_of(small, 1, 1001), false, kStart);
  for (uint64_t session = 2; session <= KeptTraces::kMaxProcesses + 1; ++session)
    keep_copy(kept, closer, slot_of(large, session, static_cast<uid_t>(1001 + session)), false, kStart);
  EXPECT_THAT(pids(), Not(Contains(1)));
  EXPECT_EQ(pids().size(), KeptTraces::kMaxProcesses);
}

// As many users as one likes can have subordinate numbers.
TEST_F(KeptTracesTest, AQuarterIsReservedForRoot) {
  TracedPage page;
  page.write(Kind::kTimeout);
  constexpr uint64_t kReserved = KeptTraces::kMaxProcesses / 4;
  for (uint64_t session = 1; session <= kReserved + 1; ++session)
    keep_copy(kept, closer, slot_of(page, session, 0), false, kStart);
  for (uint64_t session = 100; session < 140; ++session)
    keep_copy(kept, closer, slot_of(page, session, static_cast<uid_t>(session)), false, kStart);
  EXPECT_THAT(pids(), Not(Contains(1)));
  for (int each = 2; each <= static_cast<int>(kReserved) + 1; ++each) EXPECT_THAT(pids(), Contains(each));
}

TEST_F(KeptTracesTest, NoMoreBytesAreKeptThanThereIsRoomFor) {
  TracedPage page;
  page.write(Kind::kTimeout, protocol::kTraceEntries);
  page.write_details(protocol::kTraceEntries);
  for (int slot = 0; slot < 100; ++slot) keep_copy(kept, closer, slot_of(page, 1), false, kStart);
  size_t bytes = 0;
  uint64_t from = 0;
  while (const KeptTraces::Kept* one = kept.find(from, kStart)) {
    bytes += one->bytes;
    from = one->number + 1;
  }
  EXPECT_LE(bytes, KeptTraces::kMaxBytes);
  EXPECT_GT(bytes, KeptTraces::kMaxBytes - (1 << 20)) << "and not much fewer";
}

TEST_F(KeptTracesTest, WhatEndedWellIsForgottenAfterAMinute) {
  TracedPage quiet;
  quiet.write(Kind::kQpMade);
  TracedPage troubled;
  troubled.write(Kind::kTimeout);
  keep_copy(kept, closer, slot_of(quiet, 1), true, kStart);
  keep_copy(kept, closer, slot_of(troubled, 2), true, kStart);
  EXPECT_EQ(pids(kStart + KeptTraces::kQuietTime / 2).size(), 2u);
  EXPECT_THAT(pids(kStart + KeptTraces::kQuietTime), testing::ElementsAre(2));
  EXPECT_TRUE(kept.has_notable());
}

// A process may have written anything to its page.
TEST_F(KeptTracesTest, APageThatClaimsEverythingIsCopiedOnce) {
  TracedPage page;
  page.write(Kind::kTimeout);
  const uint64_t much = UINT64_MAX;
  for (const size_t ring :
       {offsetof(protocol::TraceRings, events), offsetof(protocol::TraceRings, details)}) {
    const auto at = static_cast<off_t>(offsetof(protocol::StatusPage, traces) + ring);
    ASSERT_EQ(::pwrite(page.fd(), &much, sizeof much, at), 8);
  }
  keep_copy(kept, closer, slot_of(page, 1), false, kStart);
  const KeptTraces::Kept* one = kept.find(0, kStart);
  ASSERT_NE(one, nullptr);
  EXPECT_LE(one->bytes, sizeof(protocol::TraceRings));
  EXPECT_LE(trace::Reader(one->file.get(), 0).read().size(), 2 * protocol::kTraceEntries);
}

}  // namespace
}  // namespace verbena::agent
