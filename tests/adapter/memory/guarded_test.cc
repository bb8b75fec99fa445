// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/guarded.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "adapter/memory/pages.h"

namespace verbena::memory {
namespace {

constexpr unsigned kAutodisarm = 1u << 31;  // SS_AUTODISARM; <linux/signal.h> conflicts with <csignal>

class Guarded : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_fault_guard(); }
};

TEST_F(Guarded, CopiesWhatIsThere) {
  std::vector<std::byte> from(100'000, std::byte{0x5a});
  std::vector<std::byte> to(from.size());
  EXPECT_TRUE(copy_guarded(to.data(), from));
  EXPECT_EQ(to, from);
}

// Short copies use other code than long ones.
TEST_F(Guarded, CopiesExactlyWhatIsAskedFor) {
  std::vector<std::byte> from(100);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t bytes = 1; bytes <= from.size(); ++bytes) {
    std::vector<std::byte> to(bytes + 2);
    ASSERT_TRUE(copy_guarded(&to[1], {from.data(), bytes}));
    EXPECT_TRUE(std::equal(from.begin(), from.begin() + static_cast<ptrdiff_t>(bytes), to.begin() + 1))
        << bytes;
    EXPECT_EQ(to.front(), std::byte{}) << bytes;
    EXPECT_EQ(to.back(), std::byte{}) << bytes;
  }
}

TEST_F(Guarded, AnswersFalseWhereverTheFaultIs) {
  const Pages pages = Pages::anonymous(2);
  pages.remove_rights(1);
  std::byte* const end = pages.page(1);
  std::byte other[100] = {};
  for (size_t bytes = 1; bytes <= sizeof other; ++bytes) {
    EXPECT_TRUE(copy_guarded(other, {end - bytes, bytes})) << bytes;
    EXPECT_TRUE(copy_guarded(end - bytes, {other, bytes})) << bytes;
    for (size_t there = 0; there < bytes; ++there) {
      EXPECT_FALSE(copy_guarded(other, {end - there, bytes})) << there << " of " << bytes;
      EXPECT_FALSE(copy_guarded(end - there, {other, bytes})) << there << " of " << bytes;
    }
  }
}

TEST_F(Guarded, CopiesNothingFromNowhere) {
  EXPECT_TRUE(copy_guarded(nullptr, {}));
}

TEST_F(Guarded, AnswersFalseForAnUnmappedSource) {
  const Pages pages = Pages::anonymous(3);
  pages.unmap(1);
  std::vector<std::byte> to(pages.bytes());
  EXPECT_FALSE(copy_guarded(to.data(), {pages.data(), pages.bytes()}));
}

TEST_F(Guarded, AnswersFalseForAReadOnlyDestination) {
  const Pages pages = Pages::anonymous(1, PROT_READ);
  const std::byte value{1};
  EXPECT_FALSE(copy_guarded(pages.data(), {&value, 1}));
  EXPECT_EQ(pages.data()[0], std::byte{0});
}

TEST_F(Guarded, AnswersFalseForATruncatedFile) {
  const UniqueFd file = memory_file(2);
  const Pages pages = Pages::of_file(file.get(), 2, PROT_READ | PROT_WRITE, MAP_SHARED);
  std::vector<std::byte> to(pages.bytes());
  EXPECT_TRUE(copy_guarded(to.data(), {pages.data(), pages.bytes()}));
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(page_size())), 0);
  EXPECT_FALSE(copy_guarded(to.data(), {pages.data(), pages.bytes()}));
  EXPECT_TRUE(copy_guarded(to.data(), {pages.data(), page_size()}));
}

TEST_F(Guarded, AnswersFalseForAddressesThatAreNone) {
  std::byte to[8] = {};
  auto* null = reinterpret_cast<const std::byte*>(uintptr_t{0});
  auto* non_canonical = reinterpret_cast<const std::byte*>(uintptr_t{0x8000'0000'0000'0000});
  EXPECT_FALSE(copy_guarded(to, {null, sizeof to}));
  EXPECT_FALSE(copy_guarded(to, {non_canonical, sizeof to}));
}

TEST_F(Guarded, KeepsWhatWasWrittenBeforeTheFault) {
  const Pages pages = Pages::anonymous(2);
  pages.remove_rights(1);
  int steps = 0;
  EXPECT_FALSE(guarded([&] {
    steps = 1;
    *static_cast<volatile std::byte*>(pages.page(0)) = std::byte{7};
    *static_cast<volatile std::byte*>(pages.page(1)) = std::byte{8};
    steps = 2;
  }));
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(*pages.page(0), std::byte{7});
}

TEST_F(Guarded, FaultsAgainAndAgain) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  std::byte to;
  for (int i = 0; i < 20'000; ++i) ASSERT_FALSE(copy_guarded(&to, {pages.data(), 1}));
  pages.remove_rights(0, PROT_READ);
  EXPECT_TRUE(copy_guarded(&to, {pages.data(), 1}));
}

TEST_F(Guarded, AbandonsOnlyTheInnermostCall) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  std::byte to;
  bool inner = true;
  bool after_inner = false;
  const bool outer = guarded([&] {
    inner = copy_guarded(&to, {pages.data(), 1});
    after_inner = true;
  });
  EXPECT_TRUE(outer);
  EXPECT_FALSE(inner);
  EXPECT_TRUE(after_inner);
}

TEST_F(Guarded, IsStillOnAfterAnInnerCallEnded) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  std::byte to{};
  EXPECT_FALSE(guarded([&] {
    copy_guarded(&to, {&to, 0});
    copy_guarded(&to, {pages.data(), 1});
    to = *static_cast<volatile std::byte*>(pages.data());
  }));
}

TEST_F(Guarded, PreservesErrnoAndTheSignalMask) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  sigset_t before;
  sigset_t after;
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  std::byte to;
  errno = EXDEV;
  EXPECT_FALSE(copy_guarded(&to, {pages.data(), 1}));
  EXPECT_EQ(errno, EXDEV);
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int signal = 1; signal < SIGRTMAX; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
  pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
}

TEST_F(Guarded, WorksInManyThreadsAtOnce) {
  const Pages pages = Pages::anonymous(2);
  pages.remove_rights(1);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::byte to;
      for (int round = 0; round < 2000; ++round) {
        if (copy_guarded(&to, {pages.page(1), 1})) ++wrong;
        if (!copy_guarded(&to, {pages.page(0), 1})) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// The engine's threads block every signal except those for faults.
TEST_F(Guarded, WorksInAThreadThatBlocksAllOtherSignals) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  bool copied = true;
  std::thread thread([&] {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    std::byte to;
    copied = copy_guarded(&to, {pages.data(), 1});
  });
  thread.join();
  EXPECT_FALSE(copied);
}

void block_faults() {
  sigset_t blocked;
  sigfillset(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

bool is_blocked(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

// The kernel kills a process for a fault whose signal is blocked.
TEST_F(Guarded, WorksInAThreadThatBlocksFaultsToo) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  std::thread([&] {
    block_faults();
    std::byte to;
    errno = EXDEV;
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(copy_guarded(&to, {pages.data(), 1}));
    EXPECT_EQ(errno, EXDEV);
    EXPECT_TRUE(is_blocked(SIGSEGV) && is_blocked(SIGBUS)) << "and goes on to";
  }).join();
}

TEST_F(Guarded, WorksInAThreadThatIsSeenToBlockThemFromNowOn) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  std::thread([&] {
    std::byte to;
    EXPECT_FALSE(copy_guarded(&to, {pages.data(), 1}));
    block_faults();
    check_guard();
    EXPECT_FALSE(copy_guarded(&to, {pages.data(), 1}));
  }).join();
}

// The pending signal belongs to the application, which waits for it in its own way.
TEST_F(Guarded, LeavesASignalThatWaitsWhereItIs) {
  std::thread([] {
    block_faults();
    pthread_kill(pthread_self(), SIGSEGV);
    const std::byte from{7};
    std::byte to{};
    EXPECT_TRUE(copy_guarded(&to, {&from, 1}));
    EXPECT_EQ(to, from);
    sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGSEGV);
    const timespec at_once{};
    EXPECT_EQ(sigtimedwait(&waited, nullptr, &at_once), SIGSEGV);
  }).join();
}

void fault_on_alternate_stack(int flags) {
  const Pages pages = Pages::anonymous(1, PROT_NONE);
  std::vector<char> space(1 << 16);
  stack_t alternate{};
  alternate.ss_sp = space.data();
  alternate.ss_size = space.size();
  alternate.ss_flags = flags;
  ASSERT_EQ(sigaltstack(&alternate, nullptr), 0);
  std::byte to;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(copy_guarded(&to, {pages.data(), 1}));
  stack_t after{};
  ASSERT_EQ(sigaltstack(nullptr, &after), 0);
  EXPECT_EQ(after.ss_sp, alternate.ss_sp);
  alternate.ss_flags = SS_DISABLE;
  sigaltstack(&alternate, nullptr);
}

TEST_F(Guarded, WorksOnAnAlternateStack) {
  std::thread(fault_on_alternate_stack, 0).join();
}

TEST_F(Guarded, WorksOnAnAlternateStackThatDisarmsItself) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer does not know such stacks";
#endif
  std::thread(fault_on_alternate_stack, static_cast<int>(kAutodisarm)).join();
}

TEST_F(Guarded, InstallingAgainChangesNothing) {
  struct sigaction before;
  struct sigaction after;
  sigaction(SIGSEGV, nullptr, &before);
  EXPECT_TRUE(fault_guard_in_place());
  for (int i = 0; i < 100; ++i) install_fault_guard();
  sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(before.sa_sigaction, after.sa_sigaction);
  EXPECT_TRUE(fault_guard_in_place());
}

}  // namespace
}  // namespace verbena::memory
