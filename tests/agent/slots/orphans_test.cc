// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <csignal>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pausing_loop.h"
#include "agent/sessions/client_files.h"
#include "agent/slots/process.h"
#include "agent/slots/slot_leases.h"
#include "base/lingering_socket.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

// A child process that lives until it is killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

LeasedSlot slot_of(uint32_t index, const Lessee& lessee) {
  LeasedSlot slot;
  slot.index = index;
  slot.lessee = lessee;
  return slot;
}

class OrphansTest : public ::testing::Test {
 protected:
  bool watch(Orphans& orphans, uint32_t index, const Lessee& lessee) {
    return orphans.watch(slot_of(index, lessee), [this](uint32_t slot) { ended_ = slot; });
  }
  void run_until_one_ends() {
    while (ended_ == 0) loop_.run_round();
  }

  EventLoop loop_;
  Child child_;
  uint32_t ended_ = 0;
};

TEST_F(OrphansTest, SeesTheEndOfAProcessByItsPidfdWhateverItsPidIsHere) {
  Orphans orphans(loop_);
  Lessee lessee;
  lessee.pid = 1;  // a different process
  lessee.process = share_process(watch_process(child_.pid()));
  ASSERT_TRUE(watch(orphans, 5, lessee));
  child_.end();
  run_until_one_ends();
  EXPECT_EQ(ended_, 5u);
  EXPECT_TRUE(orphans.remove(5));
  EXPECT_TRUE(orphans.empty());
}

// To end the watch may take as long as the user likes.
TEST_F(OrphansTest, SeesTheEndOfAProcessInATurnOfItsUser) {
  constexpr uid_t kOrphansUser = 1'000'000;  // not the user who runs the tests
  PausingLoop pausing;
  EventLoop& loop = pausing.loop();
  Orphans orphans(loop);
  Lessee lessee;
  lessee.uid = kOrphansUser;
  lessee.process = share_process(UniqueFd(::eventfd(0, EFD_CLOEXEC)));
  ASSERT_TRUE(watch(orphans, 5, lessee));
  pausing.make_pause(kOrphansUser);
  ASSERT_EQ(::eventfd_write(lessee.process->get(), 1), 0);
  while (ended_ == 0 && !loop.has_work_for(kOrphansUser)) loop.run_round();
  EXPECT_EQ(ended_, 0u) << "its user pauses";
  pausing.end_pauses();
  while (ended_ == 0) loop.run_round();
}

// The close waits for locks that the user has on another pidfd of the process.
TEST_F(OrphansTest, PidfdsAreClosedOnTheThreadOfTheirUserAndCountUntilThen) {
  constexpr uid_t kOrphansUser = 1000;
  ForeignCloser closer;
  std::atomic<bool> is_stuck = true;
  SharedProcess process = closer.share(kOrphansUser, watch_process(child_.pid()), closer.count(kOrphansUser));
  ASSERT_TRUE(process);
  ASSERT_TRUE(closer.work_with(
      kOrphansUser, process->get(), [&](int) { is_stuck.wait(true); }, [] {}));
  SharedProcess other = process;
  process.reset();
  EXPECT_EQ(closer.waiting(kOrphansUser), 1u) << "it has another owner";
  other.reset();
  EXPECT_EQ(closer.waiting(kOrphansUser), 2u);
  is_stuck = false;
  is_stuck.notify_all();
  EXPECT_TRUE(test::becomes_true([&] { return closer.waiting(kOrphansUser) == 0; }));
  EXPECT_EQ(closer.take_closed().size(), 2u) << "with its share";
}

TEST_F(OrphansTest, SeesThatAProcessHasEndedAlready) {
  Orphans orphans(loop_);
  Lessee lessee;
  lessee.process = share_process(watch_process(child_.pid()));
  child_.end();
  EXPECT_FALSE(watch(orphans, 5, lessee));
}

// An older agent's takeover state has pids without pidfds. To read the start time may take as long as the
// user likes.
TEST_F(OrphansTest, KnowsAProcessWithoutAPidfdByItsStartWhichTheThreadOfItsUserReads) {
  constexpr uid_t kOrphansUser = 1000;
  ForeignCloser closer;
  Orphans orphans(loop_, &closer);
  std::atomic<bool> is_stuck = true;
  ASSERT_TRUE(closer.work_with(
      kOrphansUser, STDERR_FILENO, [&](int) { is_stuck.wait(true); }, [] {}));
  Lessee lessee;
  lessee.uid = kOrphansUser;
  lessee.pid = child_.pid();
  lessee.start_time = start_time_of(child_.pid());
  EXPECT_TRUE(watch(orphans, 5, lessee));
  lessee.start_time += 2;
  EXPECT_TRUE(watch(orphans, 6, lessee)) << "it does not wait";
  EXPECT_EQ(closer.waiting(kOrphansUser), 3u);
  is_stuck = false;
  is_stuck.notify_all();
  EXPECT_TRUE(test::becomes_true([&] { return closer.waiting(kOrphansUser) == 0; }));
  std::vector<uint32_t> ended;
  for (const ForeignCloser::Done& done : closer.take_closed()) {
    ended_ = 0;
    done.task();
    if (ended_ != 0) ended.push_back(ended_);
  }
  EXPECT_EQ(ended, std::vector<uint32_t>{6}) << "a later process of this number";
}

TEST_F(OrphansTest, TheStartOfAProcessThatHasComeBackMeanwhileDoesNotCount) {
  ForeignCloser closer;
  Orphans orphans(loop_, &closer);
  Lessee lessee;
  lessee.pid = child_.pid();
  lessee.start_time = start_time_of(child_.pid()) + 2;
  ASSERT_TRUE(watch(orphans, 5, lessee));
  EXPECT_TRUE(orphans.remove(5));
  EXPECT_TRUE(test::becomes_true([&] { return closer.waiting(lessee.uid) == 0; }));
  for (const ForeignCloser::Done& done : closer.take_closed()) {
    if (done.task) done.task();
  }
  EXPECT_EQ(ended_, 0u);
}

TEST_F(OrphansTest, GivesUpAProcessThatItCannotSeeAfterAWhile) {
  Orphans orphans(loop_, nullptr, Duration::zero());
  ASSERT_TRUE(watch(orphans, 5, Lessee{}));
  EXPECT_TRUE(orphans.contains(5));
  run_until_one_ends();
  EXPECT_EQ(ended_, 5u);
}

TEST_F(OrphansTest, DoesNotGiveUpOneThatHasComeBack) {
  Orphans orphans(loop_, nullptr, Duration::zero());
  ASSERT_TRUE(watch(orphans, 5, Lessee{}));
  EXPECT_TRUE(orphans.remove(5));
  ASSERT_TRUE(watch(orphans, 6, Lessee{}));
  run_until_one_ends();
  EXPECT_EQ(ended_, 6u);
}

}  // namespace
}  // namespace verbena::agent
