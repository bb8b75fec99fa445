// SPDX-License-Identifier: Apache-2.0
#include "control/model/agent_process.h"

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/format.h"
#include "base/log.h"
#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"

namespace verbena::control {

char process_state(pid_t pid) {
  if (pid <= 0) return '?';
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%d/stat", pid);
  const UniqueFd file(::open(text, O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = file ? ::read(file.get(), text, sizeof text) : -1;
  const std::string_view line(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t end = line.rfind(')');  // the program's name may contain anything
  return end == std::string_view::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

std::string describe_silence(pid_t pid) {
  if (pid <= 0) return "agent does not respond";
  const std::string silent = verbena::format("agent (pid {}) does not respond", pid);
  switch (process_state(pid)) {
    case 'T':
      return verbena::format("{}; it is stopped: 'kill -CONT {}' continues it", silent, pid);
    case 't':
      return silent + "; it is stopped by a debugger";
    case 'D':
      return silent + "; it waits in the kernel (state D)";
    default:
      return silent;
  }
}

void SilenceLog::consider() {
  if (MonotonicClock::now() < due_) return;
  due_ = TimePoint::max();
  log_error("{}; waiting for it", describe_silence(agent_));
}

}  // namespace verbena::control

// glibc's own name for clone(2). The thread sanitizer intercepts the other name and takes the child for one
// of fork(). It then no longer follows the calling thread, whose memory the child shares, and reports as
// unlocked what that thread does under a lock.
extern "C" int __clone(int (*body)(void*), void* stack, int flags, void* argument, ...) noexcept;

namespace verbena::control {
namespace {

constexpr std::string_view kProgramName = "verbena-agent";
constexpr int kFirstFree = STDERR_FILENO + 1;
constexpr int kLongestMirrorStartMs = 10'000;

bool is_program(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// The folder of the object that contains this function; empty if unknown. An object that was loaded by a
// relative path is not searched for: the program may be in another working directory by now, where others can
// put files.
std::string own_folder() {
  Dl_info info{};
  std::string path = "/proc/self/exe";
  const auto here = reinterpret_cast<const void*>(&own_folder);
  // For the program itself dladdr() returns argv[0], which may be anything.
  if (::dladdr(here, &info) != 0 && info.dli_fname != nullptr) {
    const std::string_view object = info.dli_fname;
    const bool is_library = object.find(".so") != std::string_view::npos;
    if (is_library && !object.starts_with('/')) return {};
    if (is_library) path = object;
  }
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return {};
  std::string folder = resolved;
  return folder.substr(0, folder.rfind('/'));
}

std::string find_in_path() {
  const char* path = ::secure_getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    std::string candidate(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (!candidate.starts_with('/')) continue;  // files in the current folder are not trusted
    candidate.append("/").append(kProgramName);
    if (is_program(candidate)) return candidate;
  }
  return {};
}

// Warns if the agent will inherit a low limit of descriptors. It can raise its soft limit, but only root can
// raise the hard one.
void warn_of_low_limit() {
  constexpr rlim_t kFew = 128;  // a dozen programs
  rlimit limit{};
  if (::geteuid() == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= kFew) return;
  log_warning(
      "the agent is started with a limit of {} open descriptors (ulimit -Hn) and may not be able to "
      "work: start verbena-agent beforehand, from a shell with a higher limit",
      limit.rlim_max);
}

#define VERBENA_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

// Whether the agent gets this variable of the application's environment ("NAME=value"). Most are not meant
// for it: preloads, VERBENA_AGENT, by which a standby would start another program, and the socket of the
// application's service manager. Only an agent passes that on, to its `helper` processes.
bool is_for_agent(std::string_view entry, bool helper) {
  const std::string_view name = entry.substr(0, entry.find('='));
  if (name == "VERBENA_AGENT") return false;
  if (name == "NOTIFY_SOCKET") return helper;
  return name.starts_with("VERBENA_") || name.starts_with("LC_") || name.ends_with("SAN_OPTIONS") ||
         name == "PATH" || name == "LANG" || name == "TZ";
}

// Starts the agent by two short-lived processes: a child and a grandchild. They share this process's memory
// (CLONE_VM) while the calling thread waits. Copying the page tables of a large application would take long,
// and would mark its registered memory copy-on-write.
//
// The two make bare system calls. The C library's may be intercepted: by a preloaded library with a table of
// descriptors, or by a sanitizer with a table of signal handlers. These tables are in the shared memory, but
// the two have handlers of their own, and the grandchild has a table of descriptors of its own.
//
// Neither closes a descriptor while the calling thread waits. A peer may have sent this process a file whose
// server does not answer, and each close of a copy waits for that server. So the child shares the table, and
// the grandchild's copies are closed by execve(2), after the caller goes on.
class Launch {
 public:
  // `ready`: the descriptor that the agent closes when it listens, or -1. REQUIRES: it is no standard one
  Launch(const std::string& program, std::vector<std::string>& options, int ready)
      : program_(program), ready_(ready), ready_option_(verbena::format("--ready-fd={}", ready)) {
    static char name[] = "verbena-agent";
    arguments_ = {name};
    if (ready >= 0) arguments_.push_back(ready_option_.data());
    for (std::string& option : options) arguments_.push_back(option.data());
    arguments_.push_back(nullptr);
    keep_stderr_ = ::secure_getenv("VERBENA_LOG") != nullptr;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      if (is_for_agent(*entry, !options.empty())) environment_.push_back(*entry);
    }
    environment_.push_back(nullptr);
  }

  // Returns 0 or an errno value.
  int run() {
    void* stacks = ::mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) return errno;
    child_stack_ = static_cast<char*>(stacks) + kStackBytes;
    grandchild_stack_ = child_stack_ + kStackBytes;

    // No handler of the application may run in a process that shares its memory.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    int cancel_state = 0;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);

    // Exit signal 0: the application gets no SIGCHLD, and its wait() calls do not see the child. qemu-user
    // turns this call into a fork(), and accepts it only with SIGCHLD and without CLONE_FILES (EINVAL). Then
    // the child's writes to memory are lost, and the caller only sees that no agent comes.
    int child = __clone(child_main, child_stack_, flags_ | CLONE_FILES, this);
    if (child < 0 && errno == EINVAL) {
      flags_ |= SIGCHLD;
      child = __clone(child_main, child_stack_, flags_, this);
    }
    if (child < 0) error_ = errno;
    while (child > 0 && ::waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
    }

    ::pthread_setcancelstate(cancel_state, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::munmap(stacks, 2 * kStackBytes);
    return error_;
  }

 private:
  static constexpr size_t kStackBytes = 64 << 10;
  static constexpr rlim_t kAgentStack = 8 << 20;
  static constexpr size_t kSignalSetBytes = _NSIG / 8;  // the kernel's

  // Makes the grandchild and exits, so that the agent's parent is init.
  VERBENA_UNSANITIZED static int child_main(void* self) {
    auto* launch = static_cast<Launch*>(self);
    const int pid = __clone(grandchild_main, launch->grandchild_stack_, launch->flags_, launch);
    if (pid < 0) launch->error_ = errno;
    exit_bare(0);
  }

  VERBENA_UNSANITIZED static int grandchild_main(void* self) {
    auto* launch = static_cast<Launch*>(self);
    ::syscall(SYS_setsid);
    // The kernel's struct sigaction and its signal set: zeros mean SIG_DFL, and no signal blocked.
    const uint64_t zeros[4] = {};
    for (int signal = 1; signal < _NSIG; ++signal) {
      ::syscall(SYS_rt_sigaction, signal, zeros, nullptr, kSignalSetBytes);
    }
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, zeros, nullptr, kSignalSetBytes);
    ::syscall(SYS_umask, 022);
    if (::syscall(SYS_chdir, "/") != 0) exit_bare(127);

    // The application may have used up its limit of open files; the agent gets the maximum.
    rlimit files{};
    if (::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &files) == 0) {
      files.rlim_cur = files.rlim_max;
      ::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, nullptr);
    }
    launch->raise_stack_limit();
    // Moved out of the way: the application may have closed its standard descriptors.
    const long null = ::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
    if (null < 0) launch->fail_and_exit();
    const long null_high = ::syscall(SYS_fcntl, null, F_DUPFD, kFirstFree);
    for (int fd = 0; fd <= 2; ++fd) {
      if (fd == 2 && launch->keep_stderr_ && null != 2) continue;
      ::syscall(SYS_dup3, null_high, fd, 0);
    }
    leave_out_from(kFirstFree);
    if (launch->ready_ >= 0) ::syscall(SYS_fcntl, launch->ready_, F_SETFD, 0);
    ::syscall(SYS_execve, launch->program_.c_str(), launch->arguments_.data(), launch->environment_.data());
    launch->fail_and_exit();
  }

  // A main thread with less could overflow its stack, and the C library gives other threads as much.
  VERBENA_UNSANITIZED void raise_stack_limit() {
    rlimit stack{};
    if (::syscall(SYS_prlimit64, 0, RLIMIT_STACK, nullptr, &stack) != 0 || stack.rlim_cur >= kAgentStack)
      return;
    const rlimit wanted{kAgentStack, stack.rlim_max < kAgentStack ? kAgentStack : stack.rlim_max};
    if (::syscall(SYS_prlimit64, 0, RLIMIT_STACK, &wanted, nullptr) == 0) return;
    stack.rlim_cur = stack.rlim_max;  // only root may raise the hard limit
    ::syscall(SYS_prlimit64, 0, RLIMIT_STACK, &stack, nullptr);
  }

  // Has execve(2) close all descriptors from this one on.
  VERBENA_UNSANITIZED static void leave_out_from(int first) {
    if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
    for (int fd = first; fd < 65536; ++fd) ::syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);  // before 5.11
  }

  [[noreturn]] VERBENA_UNSANITIZED void fail_and_exit() {
    error_ = errno;
    exit_bare(127);
  }

  [[noreturn]] VERBENA_UNSANITIZED static void exit_bare(int status) {
    for (;;) ::syscall(SYS_exit_group, status);
  }

  const std::string& program_;
  const int ready_;
  std::string ready_option_;
  bool keep_stderr_;
  int flags_ = CLONE_VM | CLONE_VFORK;
  std::vector<char*> environment_;
  std::vector<char*> arguments_;
  char* child_stack_ = nullptr;
  char* grandchild_stack_ = nullptr;
  volatile int error_ = 0;
};

}  // namespace

std::string find_agent_beside(const std::string& folder) {
  // Relative to lib/<triplet>/verbena, lib/verbena, lib and bin of an installation, and to lib, bin and tests
  // of a build tree. The nearest first: above a build tree may be a folder that others can write to.
  static constexpr std::string_view kPlaces[] = {
      "/",           "/../libexec/verbena/",       "/../bin/",       "/../../libexec/verbena/",
      "/../../bin/", "/../../../libexec/verbena/", "/../../../bin/",
  };
  if (folder.empty()) return {};
  for (const std::string_view place : kPlaces) {
    std::string candidate = folder;
    candidate.append(place).append(kProgramName);
    if (is_program(candidate)) return candidate;
  }
  return {};
}

std::string find_agent_program(const std::string& wanted) {
  const char* overriding = ::secure_getenv("VERBENA_AGENT");
  if (overriding != nullptr && *overriding != '\0') return overriding;
  if (!wanted.empty()) return wanted;
  std::string program = find_agent_beside(own_folder());
  return program.empty() ? find_in_path() : program;
}

bool has_rights_of_another() {
  if (::getauxval(AT_SECURE) != 0) return true;
  const uid_t real = ::getuid();
  return real != 0 && (real != ::geteuid() || ::getgid() != ::getegid());
}

void show_devices_here(const std::string& wanted) {
  const bool chosen = ::secure_getenv("VERBENA_SYS_DIR") != nullptr;
  if (chosen || has_rights_of_another() || paths::state_is_shown_by() != paths::ShownBy::kNobody) return;
  const std::string program = find_agent_program(wanted);
  if (program.empty()) return;
  const auto ready = start_agent(program, {"--mirror"});
  if (!ready) return;
  pollfd shown{.fd = ready->get(), .events = POLLIN, .revents = 0};
  ::poll(&shown, 1, kLongestMirrorStartMs);
}

const char* why_not_started(int error) {
  const char* const missing = paths::missing_system_file();
  return missing != nullptr ? missing : std::strerror(error);
}

Result<UniqueFd> start_agent(const std::string& program, std::vector<std::string> options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno);
  UniqueFd ready(ends[0]);
  UniqueFd write_end(ends[1]);
  // The application may have closed its standard descriptors.
  if (ends[1] < kFirstFree) write_end = UniqueFd(::fcntl(ends[1], F_DUPFD_CLOEXEC, kFirstFree));
  if (!write_end) return fail(errno);
  warn_of_low_limit();
  if (const int error = Launch(program, options, write_end.get()).run(); error != 0) {
    log_error("cannot start the agent, {}: {}", program, why_not_started(error));
    return fail(error);
  }
  log_debug("started {}", program);
  return ready;
}

Result<void> start_agent_alone(const std::string& program, std::vector<std::string> options) {
  const int error = Launch(program, options, -1).run();
  if (error != 0) return fail(error);
  return {};
}

}  // namespace verbena::control
