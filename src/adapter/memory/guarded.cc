// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/guarded.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "adapter/memory/ordered_copy.h"
#include "base/bulk_copy.h"
#include "base/log.h"
#include "base/time.h"

#ifdef __SANITIZE_THREAD__
#include <csetjmp>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace verbena::memory {
namespace {

// Code that may run inside a guarded call. This is the code of the object that contains run_guarded()
// (libibverbs.so.1, or a program of ours), and of the libraries which that object names as needed. They
// include the C library with its memcpy. A fault in other code belongs to the application.

struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
};

// Executable segments; an object has one, seldom two.
constinit std::array<Range, 64> ranges;
// Stored last. Two threads that search at the same time write the same values to the same places.
constinit std::atomic<size_t> range_count{0};

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// Pointer to an address in an object's dynamic section: relocated already (glibc) or not yet (musl).
const char* relocated(const dl_phdr_info& object, ElfW(Addr) address) {
  const ElfW(Addr) absolute = address < object.dlpi_addr ? object.dlpi_addr + address : address;
  return reinterpret_cast<const char*>(absolute);
}

const ElfW(Dyn) * dynamic_section(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) {
      return reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + segment.p_vaddr);
    }
  }
  return nullptr;  // a static program
}

bool holds(const dl_phdr_info& object, const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && wanted >= begin && wanted - begin < segment.p_memsz) return true;
  }
  return false;
}

struct Search {
  const void* own = reinterpret_cast<const void*>(&run_guarded);
  // The memcpy() that our calls are bound to: an interposed one (a sanitizer's) is in no library that we
  // name.
  const void* copy =
      reinterpret_cast<const void*>(static_cast<void* (*)(void*, const void*, size_t)>(memcpy));
  const ElfW(Dyn) * needed_by_own = nullptr;
  const char* strings = nullptr;
  size_t count = 0;

  bool names(const char* path) const {
    const std::string_view name = base_name(path);
    for (const ElfW(Dyn)* entry = needed_by_own; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_NEEDED && name == base_name(strings + entry->d_un.d_val)) return true;
    }
    return false;
  }
};

int find_own(dl_phdr_info* object, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (!holds(*object, search.own)) return 0;
  const ElfW(Dyn)* dynamic = dynamic_section(*object);
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) search.strings = relocated(*object, entry->d_un.d_ptr);
  }
  if (search.strings != nullptr) search.needed_by_own = dynamic;
  return 1;
}

int collect(dl_phdr_info* object, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const bool wanted =
      holds(*object, search.own) || holds(*object, search.copy) || search.names(object->dlpi_name);
  if (!wanted) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.count < ranges.size(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    ranges[search.count].begin.store(begin, std::memory_order_relaxed);
    ranges[search.count].end.store(begin + segment.p_memsz, std::memory_order_relaxed);
    ++search.count;
  }
  return 0;
}

// Finds the ranges, which are constant afterwards. Idempotent; any thread may call it, but no signal handler.
void find_guarded_code() {
  if (range_count.load(std::memory_order_acquire) != 0) return;
  Search search;
  dl_iterate_phdr(find_own, &search);
  dl_iterate_phdr(collect, &search);
  range_count.store(search.count, std::memory_order_release);
}

// Whether `address` lies in these ranges. Async-signal-safe.
bool is_guarded_code(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  const size_t count = range_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const uintptr_t begin = ranges[i].begin.load(std::memory_order_relaxed);
    if (wanted >= begin && wanted < ranges[i].end.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

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

// Returns true if the fault is a guarded call's; it has then changed the context in which the thread
// continues. Async-signal-safe.
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

// Our handlers of SIGSEGV and SIGBUS, stacked with those of the application.
//
// A fault is first offered to abandon_guarded_call(). If that declines, or the signal is no fault at all
// (kill(2)), the signal has exactly the effect that the previous disposition would have given it. A previous
// handler is called with its mask and flags. The default action ends the process with the same status, and
// with a core dump of the faulting instruction.
//
// The application may install a handler over ours, and keep ours as its predecessor to chain to or to
// restore. So each installation over something new uses another entry point, whose predecessor never changes.
// In whatever order the application calls or restores handlers, each entry point knows the handler to call
// next.

using Action = struct sigaction;
using Entry = void (*)(int, siginfo_t*, void*);

constexpr std::array kSignals = {SIGSEGV, SIGBUS};
// Max installations per signal: enough for every handler that an application and its libraries may install
// over ours.
constexpr size_t kLevels = 16;

// One installation: an entry point, and the action that it replaced.
struct Level {
  enum State : uint8_t { kFree, kFilling, kReady };
  std::atomic<State> state{kFree};
  std::atomic<bool> spent{false};  // the previous handler has run, and had SA_RESETHAND
  Action previous{};               // written once, before kReady
};

constinit Level levels[kSignals.size()][kLevels];

size_t index_of(int signal) {
  return signal == SIGSEGV ? 0 : 1;
}

bool is_default_or_ignored(const Action& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 &&
         (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

// Whether an instruction raised the signal, and would again when repeated. Not kill(2) and its kin (si_code
// <= 0), nor the kernel's notice of a broken page that nothing has touched yet.
bool is_fault(int signal, const siginfo_t* info) {
  if (info == nullptr || info->si_code <= 0) return false;
  return !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

void end_by_default(int signal, siginfo_t* info) {
  Action action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  // A fault repeats on return, so that the kernel reports it and dumps core where it happened. Any other
  // signal is sent again as it was.
  if (is_fault(signal, info)) return;
  if (info == nullptr) {
    raise(signal);
  } else {
    syscall(SYS_rt_tgsigqueueinfo, getpid(), static_cast<pid_t>(syscall(SYS_gettid)), signal, info);
  }
}

// Calls a handler as the kernel would: with its mask added to the interrupted one, and with all three
// arguments whatever its kind.
void call_handler(const Action& action, int signal, siginfo_t* info, void* context) {
  sigset_t blocked = action.sa_mask;
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  action.sa_sigaction(signal, info, context);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Detects circles: an application that has installed its handler twice may have made it and ours each other's
// predecessors. Then the same context is seen again and again, ever deeper in the stack. (At the same depth
// it is the next fault at the same place, after a handler left by siglongjmp.)
struct Descent {
  const void* context;
  uintptr_t frame;
  size_t depth;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Descent descent{};

[[gnu::noinline]] bool goes_in_circles(const void* context) {
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const bool deeper = context == descent.context && frame < descent.frame;
  descent = {context, frame, deeper ? descent.depth + 1 : 0};
  return descent.depth > kLevels;
}

void hand_on(Level& level, int signal, siginfo_t* info, void* context) {
  const Action& previous = level.previous;
  if (is_default_or_ignored(previous)) {
    const bool ignored = previous.sa_handler == SIG_IGN;
    // The kernel lets no process ignore a fault: it ends the process anyway.
    if (!ignored || is_fault(signal, info)) end_by_default(signal, info);
    return;
  }
  const bool was_spent =
      (previous.sa_flags & SA_RESETHAND) != 0 && level.spent.exchange(true, std::memory_order_relaxed);
  if (was_spent || goes_in_circles(context)) {
    end_by_default(signal, info);
    return;
  }
  call_handler(previous, signal, info, context);
}

void handle(size_t level, int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool claimed = context != nullptr && is_fault(signal, info) &&
                       abandon_guarded_call(*static_cast<ucontext_t*>(context));
  if (!claimed) hand_on(levels[index_of(signal)][level], signal, info, context);
  errno = saved_errno;
}

template <size_t level>
void entry(int signal, siginfo_t* info, void* context) {
  handle(level, signal, info, context);
}

template <size_t... level>
constexpr std::array<Entry, kLevels> make_entries(std::index_sequence<level...>) {
  return {entry<level>...};
}
constexpr std::array<Entry, kLevels> kEntries = make_entries(std::make_index_sequence<kLevels>());

bool is_ours(const Action& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 &&
         std::ranges::find(kEntries, action.sa_sigaction) != kEntries.end();
}

bool same_mask(const sigset_t& a, const sigset_t& b) {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&a, signal) != sigismember(&b, signal)) return false;
  }
  return true;
}

bool same(const Action& a, const Action& b) {
  return a.sa_sigaction == b.sa_sigaction && a.sa_flags == b.sa_flags && same_mask(a.sa_mask, b.sa_mask);
}

// The level with this predecessor: the one made for it earlier, else a new one. kLevels: none is left.
size_t level_for(size_t signal_index, const Action& previous) {
  auto& candidates = levels[signal_index];
  for (size_t i = 0; i < kLevels; ++i) {
    if (candidates[i].state.load(std::memory_order_acquire) == Level::kReady &&
        same(candidates[i].previous, previous)) {
      candidates[i].spent.store(false, std::memory_order_relaxed);
      return i;
    }
  }
  for (size_t i = 0; i < kLevels; ++i) {
    Level::State expected = Level::kFree;
    if (!candidates[i].state.compare_exchange_strong(expected, Level::kFilling)) continue;
    candidates[i].previous = previous;
    candidates[i].state.store(Level::kReady, std::memory_order_release);
    return i;
  }
  return kLevels;
}

Action action_over(const Action& previous, size_t level) {
  Action action{};
  action.sa_sigaction = kEntries[level];
  // A predecessor that is a handler decides which stack to use, and whether calls restart. SA_NODEFER: the
  // mask in our handler is the interrupted thread's, so that the predecessor's can be added to it.
  const int inherited = is_default_or_ignored(previous) ? SA_ONSTACK | SA_RESTART
                                                        : previous.sa_flags & (SA_ONSTACK | SA_RESTART);
  action.sa_flags = SA_SIGINFO | SA_NODEFER | inherited;
  sigemptyset(&action.sa_mask);
  return action;
}

void install_for(int signal) {
  Action current;
  if (sigaction(signal, nullptr, &current) != 0) return;
  // Tries again if the application changed the disposition between query and installation.
  for (int attempts = 0; attempts < 4 && !is_ours(current); ++attempts) {
    const size_t level = level_for(index_of(signal), current);
    if (level == kLevels) {
      log_warning(
          "signal {}: too many handlers were installed over ours; memory that the application unmaps "
          "while it is registered is no longer survived",
          signal);
      return;
    }
    const Action action = action_over(current, level);
    Action replaced;
    if (sigaction(signal, &action, &replaced) != 0 || is_ours(replaced) || same(replaced, current)) return;
    current = replaced;
  }
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
  if (!fault_guard_in_place()) install_fault_guard();
  belief.holds = takes_faults() && fault_guard_in_place();
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

bool run_guarded(void (*function)(void*), void* argument) {
  if (signals != Signals::kOpen) [[unlikely]] {
    if (signals == Signals::kUnknown) signals = takes_faults() ? Signals::kOpen : Signals::kBlocked;
    if (signals == Signals::kBlocked) return run_with_faults_open(function, argument);
  }
  return run_with_landing(function, argument);
}

void check_guard() {
  if (!fault_guard_in_place()) install_fault_guard();
  signals = takes_faults() ? Signals::kOpen : Signals::kBlocked;
}

void install_fault_guard() {
  find_guarded_code();
  for (int signal : kSignals) install_for(signal);
}

bool fault_guard_in_place() {
  for (int signal : kSignals) {
    Action current;
    if (sigaction(signal, nullptr, &current) != 0 || !is_ours(current)) return false;
  }
  return true;
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
