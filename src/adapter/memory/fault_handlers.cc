// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/fault_handlers.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

namespace verbena::memory {

namespace {

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
  const void* own = reinterpret_cast<const void*>(&find_guarded_code);
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

}  // namespace

void find_guarded_code() {
  if (range_count.load(std::memory_order_acquire) != 0) return;
  Search search;
  dl_iterate_phdr(find_own, &search);
  dl_iterate_phdr(collect, &search);
  range_count.store(search.count, std::memory_order_release);
}

bool is_guarded_code(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  const size_t count = range_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const uintptr_t begin = ranges[i].begin.load(std::memory_order_relaxed);
    if (wanted >= begin && wanted < ranges[i].end.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

namespace {

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

constinit std::atomic<ClaimFault> claim_fault{nullptr};
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
  const ClaimFault claim = claim_fault.load(std::memory_order_relaxed);
  const bool claimed =
      context != nullptr && is_fault(signal, info) && claim(*static_cast<ucontext_t*>(context));
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
  if ((action.sa_flags & SA_SIGINFO) == 0) return false;
  for (Entry ours : kEntries) {
    if (action.sa_sigaction == ours) return true;
  }
  return false;
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

}  // namespace

void install_fault_handlers(ClaimFault claim) {
  claim_fault.store(claim, std::memory_order_relaxed);
  for (int signal : kSignals) install_for(signal);
}

bool fault_handlers_in_place() {
  for (int signal : kSignals) {
    Action current;
    if (sigaction(signal, nullptr, &current) != 0 || !is_ours(current)) return false;
  }
  return true;
}

}  // namespace verbena::memory
