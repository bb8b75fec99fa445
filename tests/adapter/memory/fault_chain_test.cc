// SPDX-License-Identifier: Apache-2.0
// Faults in the application's own code. Each test runs in a child with fresh signal dispositions, and checks
// how the child ends.
#include <csetjmp>
#include <csignal>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/pages.h"

namespace verbena::memory {
namespace {

constexpr int kPassed = 42;

// Returns the exit status of a child that runs `body` with the default dispositions.
int status_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(60);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

#define EXPECT_PASSES(...)                      \
  do {                                          \
    const int status_ = status_of(__VA_ARGS__); \
    EXPECT_TRUE(WIFEXITED(status_)) << status_; \
    EXPECT_EQ(WEXITSTATUS(status_), kPassed);   \
  } while (false)

#define EXPECT_DIES_OF(signal, ...)               \
  do {                                            \
    const int status_ = status_of(__VA_ARGS__);   \
    EXPECT_TRUE(WIFSIGNALED(status_)) << status_; \
    EXPECT_EQ(WTERMSIG(status_), signal);         \
  } while (false)

// ThreadSanitizer wraps signal handlers: they run with every signal blocked, whatever their flags say.
#ifdef __SANITIZE_THREAD__
constexpr bool kMasksAreOurs = false;
#else
constexpr bool kMasksAreOurs = true;
#endif
#define SKIP_IF_MASKS_ARE_NOT_OURS() \
  if (!kMasksAreOurs) GTEST_SKIP() << "ThreadSanitizer blocks all signals in handlers"

Pages& forbidden() {
  static Pages pages = Pages::anonymous(1, PROT_NONE);
  return pages;
}

bool guard_holds() {
  std::byte to;
  return !copy_guarded(&to, {forbidden().data(), 1});
}

[[gnu::noinline]] void fault() {
  *static_cast<volatile std::byte*>(forbidden().data()) = std::byte{1};
}

using Handler = void (*)(int, siginfo_t*, void*);
struct sigaction set_handler(Handler handler, int flags = 0) {
  struct sigaction action {};
  struct sigaction before;
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGSEGV, &action, &before);
  return before;
}

void pass(int, siginfo_t* info, void* context) {
  _exit(info->si_addr == forbidden().data() && context != nullptr ? kPassed : 1);
}

volatile int calls = 0;
sigjmp_buf before_fault;
void count_and_leap(int, siginfo_t*, void*) {
  calls = calls + 1;
  siglongjmp(before_fault, 1);
}
void count_and_open(int, siginfo_t*, void*) {
  calls = calls + 1;
  forbidden().remove_rights(0, PROT_READ | PROT_WRITE);
}

struct sigaction saved;
void call_saved(int signal, siginfo_t* info, void* context) {
  calls = calls + 1;
  saved.sa_sigaction(signal, info, context);
}

TEST(FaultChain, UnguardedFaultKillsAsIfWeWereNotThere) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, UnguardedFaultAfterAGuardedOneStillKills) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    if (!guard_holds()) _exit(1);
    fault();
  });
}

TEST(FaultChain, BusErrorKillsAsBusError) {
  EXPECT_DIES_OF(SIGBUS, [] {
    install_fault_guard();
    const UniqueFd file = memory_file(1);
    const Pages pages = Pages::of_file(file.get(), 1, PROT_READ, MAP_SHARED);
    if (ftruncate(file.get(), 0) != 0) _exit(1);
    [[maybe_unused]] const std::byte value = *static_cast<volatile std::byte*>(pages.data());
  });
}

TEST(FaultChain, IgnoredFaultKillsAsTheKernelHasIt) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    std::signal(SIGSEGV, SIG_IGN);
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, SignalSentFromOutsideKillsByDefault) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    raise(SIGSEGV);
  });
}

TEST(FaultChain, SignalSentIntoAGuardedCallIsNotOurs) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    guarded([] { raise(SIGSEGV); });
  });
}

TEST(FaultChain, SignalSentFromOutsideStaysIgnored) {
  EXPECT_PASSES([] {
    std::signal(SIGSEGV, SIG_IGN);
    install_fault_guard();
    raise(SIGSEGV);
    _exit(guard_holds() ? kPassed : 1);
  });
}

TEST(FaultChain, EarlierHandlerGetsTheFaultWithItsDetails) {
  EXPECT_PASSES([] {
    set_handler(pass);
    install_fault_guard();
    if (!guard_holds()) _exit(1);
    fault();
  });
}

TEST(FaultChain, PlainHandlerGetsTheFault) {
  EXPECT_PASSES([] {
    std::signal(SIGSEGV, [](int signal) { _exit(signal == SIGSEGV ? kPassed : 1); });
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, HandlerThatMendsTheFaultLetsTheProgramGoOn) {
  EXPECT_PASSES([] {
    set_handler(count_and_open);
    install_fault_guard();
    fault();
    _exit(calls == 1 && forbidden().data()[0] == std::byte{1} ? kPassed : 1);
  });
}

TEST(FaultChain, HandlerRunsWithItsMask) {
  SKIP_IF_MASKS_ARE_NOT_OURS();
  EXPECT_PASSES([] {
    struct sigaction action {};
    action.sa_handler = [](int) {
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      _exit(sigismember(&mask, SIGUSR2) == 1 && sigismember(&mask, SIGSEGV) == 1 &&
                    sigismember(&mask, SIGUSR1) == 0
                ? kPassed
                : 1);
    };
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGSEGV, &action, nullptr);
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, HandlerThatDefersNothingMayFaultAgain) {
  SKIP_IF_MASKS_ARE_NOT_OURS();
  EXPECT_PASSES([] {
    set_handler(
        [](int, siginfo_t*, void*) {
          if (calls == 1) _exit(kPassed);
          calls = calls + 1;
          fault();
        },
        SA_NODEFER);
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, FaultInsideADeferringHandlerKills) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    set_handler([](int, siginfo_t*, void*) { fault(); });
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, OneShotHandlerRunsOnce) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    set_handler(
        [](int, siginfo_t*, void*) {
          calls = calls + 1;
          if (calls > 1) _exit(1);
        },
        static_cast<int>(SA_RESETHAND));
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, HandlerMayLeapOutAgainAndAgain) {
  EXPECT_PASSES([] {
    set_handler(count_and_leap);
    install_fault_guard();
    while (calls < 100) {
      if (sigsetjmp(before_fault, 1) == 0) fault();
    }
    _exit(calls == 100 && guard_holds() ? kPassed : 1);
  });
}

TEST(FaultChain, HandlerMayUseGuardedCalls) {
  SKIP_IF_MASKS_ARE_NOT_OURS();
  EXPECT_PASSES([] {
    set_handler([](int, siginfo_t*, void*) { _exit(guard_holds() ? kPassed : 1); }, SA_NODEFER);
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, NoticesAHandlerPutOverOurs) {
  EXPECT_PASSES([] {
    install_fault_guard();
    if (!fault_guard_in_place()) _exit(1);
    set_handler(pass);
    if (fault_guard_in_place()) _exit(2);
    install_fault_guard();
    if (!fault_guard_in_place() || !guard_holds()) _exit(3);
    fault();
  });
}

TEST(FaultChain, LaterHandlerThatChainsServesGuardedCallsToo) {
  EXPECT_PASSES([] {
    install_fault_guard();
    saved = set_handler(call_saved);
    _exit(guard_holds() && calls == 1 ? kPassed : 1);
  });
}

TEST(FaultChain, LaterHandlerThatChainsToUsDoesNotGoInCircles) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    saved = set_handler(call_saved);
    install_fault_guard();
    if (!guard_holds() || calls != 0) _exit(1);
    fault();
  });
}

TEST(FaultChain, HandlersOnBothSidesOfOursBothRun) {
  EXPECT_PASSES([] {
    set_handler(pass);
    install_fault_guard();
    saved = set_handler(call_saved);
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, LaterHandlerMayPutOursBackAndTryAgain) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    saved = set_handler([](int, siginfo_t*, void*) {
      calls = calls + 1;
      if (calls > 1) _exit(1);
      sigaction(SIGSEGV, &saved, nullptr);
    });
    install_fault_guard();
    fault();
  });
}

TEST(FaultChain, HandlerInstalledTwiceOverOursEndsInDeathNotInCircles) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    for (int i = 0; i < 3; ++i) {
      saved = set_handler(call_saved);
      install_fault_guard();
    }
    if (!guard_holds()) _exit(1);
    fault();
  });
}

TEST(FaultChain, SurvivesManyReinstallationsOfTheSameHandler) {
  EXPECT_PASSES([] {
    for (int i = 0; i < 1000; ++i) {
      set_handler(pass);
      install_fault_guard();
      if (!fault_guard_in_place()) _exit(1);
    }
    if (!guard_holds()) _exit(2);
    fault();
  });
}

// A handler that interrupts our copy is not our code. For example, a profiler's handler that probes memory
// relies on its own SIGSEGV handler.
TEST(FaultChain, FaultOfForeignCodeInsideAGuardedCallIsNotOurs) {
  EXPECT_PASSES([] {
    set_handler(pass);
    install_fault_guard();
    // mov byte [rdi], 1; ret
    const unsigned char store[] = {0xc6, 0x07, 0x01, 0xc3};
    const Pages code = Pages::anonymous(1);
    std::memcpy(code.data(), store, sizeof store);
    code.remove_rights(0, PROT_READ | PROT_EXEC);
    const auto foreign = reinterpret_cast<void (*)(void*)>(code.data());
    run_guarded(foreign, forbidden().data());
    _exit(1);
  });
}

TEST(FaultChain, FaultInAnotherThreadThanTheGuardedOneIsNotOurs) {
  EXPECT_DIES_OF(SIGSEGV, [] {
    install_fault_guard();
    guarded([] { std::thread(fault).join(); });
  });
}

TEST(FaultChain, ChildOfForkIsGuardedToo) {
  EXPECT_PASSES([] {
    install_fault_guard();
    const pid_t child = fork();
    if (child == 0) _exit(guard_holds() ? kPassed : 1);
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  });
}

}  // namespace
}  // namespace verbena::memory
