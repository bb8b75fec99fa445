// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/guarded.h"

#include <atomic>
#include <cerrno>
#include <csignal>

#include <ucontext.h>

#include "adapter/memory/fault_handlers.h"
#include "adapter/memory/ordered_copy.h"
#include "base/bulk_copy.h"
#include "base/time.h"

#ifdef __SANITIZE_THREAD__
#include <csetjmp>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace verbena::memory {
namespace {

// How a guarded call is abandoned: the handler does not jump. It edits the interrupted context so that the
// return from the signal lands in run_guarded(). So the kernel undoes everything that it did for the signal
// (mask, alternate stack, SS_AUTODISARM), and handlers that called ours end properly.
#ifdef __SANITIZE_THREAD__
// ThreadSanitizer keeps a stack of its own, which only the longjmp() that it intercepts unwinds.
struct Landing {
  jmp_buf context;
};
#define VERBENA_SET_LANDING(landing) _setjmp((landing).context)

[[noreturn]] void leap(Landing* landing) {
  _longjmp(landing->context, 1);
}

void resume_at(Landing& landing, ucontext_t& interrupted) {
  auto& registers = interrupted.uc_mcontext.gregs;
  constexpr greg_t kRedZone = 128;
  registers[REG_RSP] = ((registers[REG_RSP] - kRedZone) & ~greg_t{15}) - 8;  // as after a call
  registers[REG_RDI] = reinterpret_cast<greg_t>(&landing);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&leap);
}
#else
// Filled by __builtin_setjmp: frame pointer, address of the landing, stack pointer. The compiler expects no
// other register to survive, so setting these three is all that __builtin_longjmp would do.
struct Landing {
  void* context[5];
};
#define VERBENA_SET_LANDING(landing) __builtin_setjmp((landing).context)

void resume_at(Landing& landing, ucontext_t& interrupted) {
#if defined(__x86_64__)
  auto& registers = interrupted.uc_mcontext.gregs;
  constexpr greg_t kDirectionFlag = 0x400;
  registers[REG_RBP] = reinterpret_cast<greg_t>(landing.context[0]);
  registers[REG_RIP] = reinterpret_cast<greg_t>(landing.context[1]);
  registers[REG_RSP] = reinterpret_cast<greg_t>(landing.context[2]);
  registers[REG_EFL] &= ~kDirectionFlag;
#elif defined(__aarch64__)
  auto& registers = interrupted.uc_mcontext;
  registers.regs[29] = reinterpret_cast<uint64_t>(landing.context[0]);
  registers.pc = reinterpret_cast<uint64_t>(landing.context[1]);
  registers.sp = reinterpret_cast<uint64_t>(landing.context[2]);
#else
#error "the registers of this processor are not known here"
#endif
}
#endif

const void* interrupted_at(const ucontext_t& interrupted) {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(interrupted.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(interrupted.uc_mcontext.pc);
#endif
}

// A guarded call in progress in this thread, on its stack.
struct Guard {
  Landing landing;
  Guard* outer;
};

// Initial-exec: a signal handler must not allocate, which the dynamic TLS model may do at first use.
[[gnu::tls_model("initial-exec")]] constinit thread_local Guard* innermost = nullptr;

bool abandon_guarded_call(ucontext_t& interrupted) {
  if (abandon_small_copy(interrupted)) return true;
  Guard* guard = innermost;
  if (guard == nullptr || !is_guarded_code(interrupted_at(interrupted))) return false;
#ifdef __SANITIZE_ADDRESS__
  __asan_handle_no_return();  // the abandoned frames must leave no poison behind
#endif
  resume_at(guard->landing, interrupted);
  return true;
}

// A cheap clock, and the time for which an answer is cached: about a millisecond at 2 GHz; it differs on
// other processors.
#if defined(__x86_64__)
constexpr uint64_t kBelieved = 2'000'000;
uint64_t ticks() {
  return __builtin_ia32_rdtsc();
}
#else
constexpr uint64_t kBelieved = 1'000'000;
uint64_t ticks() {
  return static_cast<uint64_t>(MonotonicClock::now().time_since_epoch().count());
}
#endif

struct Belief {
  uint64_t asked_at;
  bool holds;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Belief belief{};

bool takes_faults() {
  sigset_t blocked;
  if (pthread_sigmask(SIG_BLOCK, nullptr, &blocked) != 0) return false;
  return sigismember(&blocked, SIGSEGV) == 0 && sigismember(&blocked, SIGBUS) == 0;
}

// Whether this thread blocks SIGSEGV or SIGBUS, as run_guarded() last saw it.
enum class Signals : uint8_t { kUnknown, kOpen, kBlocked };
[[gnu::tls_model("initial-exec")]] constinit thread_local Signals signals = Signals::kUnknown;

// Whether SIGSEGV or SIGBUS would be delivered as soon as it is unblocked.
bool is_fault_pending() {
  sigset_t pending;
  return ::sigpending(&pending) != 0 || sigismember(&pending, SIGSEGV) != 0 ||
         sigismember(&pending, SIGBUS) != 0;
}

// Unblocks SIGSEGV and SIGBUS in the calling thread during its lifetime.
class FaultsOpen {
 public:
  FaultsOpen() {
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    is_open_ = !is_fault_pending() && pthread_sigmask(SIG_UNBLOCK, &faults, &before_) == 0;
  }
  ~FaultsOpen() {
    if (is_open_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FaultsOpen(const FaultsOpen&) = delete;
  FaultsOpen& operator=(const FaultsOpen&) = delete;

 private:
  sigset_t before_;
  bool is_open_;
};

[[gnu::noinline]] bool ask_whether_guard_holds() {
  if (!fault_handlers_in_place()) install_fault_guard();
  belief.holds = takes_faults() && fault_handlers_in_place();
  belief.asked_at = ticks();
  return belief.holds;
}

// Not inlined: the landing must be in a frame that only this call uses.
[[gnu::noinline]] bool run_with_landing(void (*function)(void*), void* argument) {
  Guard guard;
  guard.outer = innermost;
  if (VERBENA_SET_LANDING(guard.landing) != 0) {
    innermost = guard.outer;
    return false;
  }
  innermost = &guard;
  // This thread's signal handler also reads `innermost`: keeps the accesses on their side of the call.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  function(argument);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  innermost = guard.outer;
  return true;
}

[[gnu::noinline]] bool run_with_faults_open(void (*function)(void*), void* argument) {
  const int saved_errno = errno;
  bool done;
  {
    const FaultsOpen open;
    done = run_with_landing(function, argument);
  }
  errno = saved_errno;
  return done;
}

}  // namespace

bool run_guarded(void (*function)(void*), void* argument) {
  if (signals != Signals::kOpen) [[unlikely]] {
    if (signals == Signals::kUnknown) signals = takes_faults() ? Signals::kOpen : Signals::kBlocked;
    if (signals == Signals::kBlocked) return run_with_faults_open(function, argument);
  }
  return run_with_landing(function, argument);
}

void check_guard() {
  if (!fault_handlers_in_place()) install_fault_guard();
  signals = takes_faults() ? Signals::kOpen : Signals::kBlocked;
}

void install_fault_guard() {
  find_guarded_code();
  install_fault_handlers(abandon_guarded_call);
}

bool fault_guard_in_place() {
  return fault_handlers_in_place();
}

bool guard_holds_here() {
  if (ticks() - belief.asked_at < kBelieved && belief.asked_at != 0) [[likely]]
    return belief.holds;
  return ask_whether_guard_holds();
}

bool may_copy_small(size_t bytes) {
  return is_small_copy(bytes) && signals == Signals::kOpen;
}

bool copy_guarded(std::byte* to, ConstBytes from) {
  if (may_copy_small(from.size())) [[likely]]
    return copy_small(to, from);
  if (from.empty()) return true;
  return guarded([to, from] { copy_bulk(to, from.data(), from.size()); });
}

namespace {

// The bare instructions: ThreadSanitizer's atomics take a lock around the access, which a fault would leave
// locked.
__attribute__((no_sanitize("thread"))) uint64_t fetch_add(uint64_t* word, uint64_t addend) {
  return __atomic_fetch_add(word, addend, __ATOMIC_SEQ_CST);
}

// Needs write permission even if the comparison fails, as the locked instruction does.
__attribute__((no_sanitize("thread"))) uint64_t compare_swap(uint64_t* word, uint64_t expected,
                                                             uint64_t desired) {
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;  // the previous value, equal or not
}

}  // namespace

std::optional<uint64_t> fetch_add_guarded(std::byte* address, uint64_t addend) {
  uint64_t original = 0;
  auto* word = reinterpret_cast<uint64_t*>(address);
  if (!guarded([&] { original = fetch_add(word, addend); })) return std::nullopt;
  return original;
}

std::optional<uint64_t> compare_swap_guarded(std::byte* address, uint64_t expected, uint64_t desired) {
  uint64_t original = 0;
  auto* word = reinterpret_cast<uint64_t*>(address);
  if (!guarded([&] { original = compare_swap(word, expected, desired); })) return std::nullopt;
  return original;
}

}  // namespace verbena::memory
