// SPDX-License-Identifier: Apache-2.0
#include "preload/sysfs/netlink_helper.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/paths/state_path.h"
#include "base/unique_fd.h"
#include "preload/sysfs/errno_keeper.h"

namespace verbena::sysfs {
namespace {

using paths::PathText;

constexpr const char* kName = "verbena-rdma-netlink";
// Descriptor numbers in the helper: its socket, and a pidfd of the program.
constexpr int kSocket = 3;
constexpr int kProgram = 4;

// Lets one thread of a process at a time start a helper. A child of fork() may find the lock held by a thread
// that does not exist in it, and takes it over.
class StartLock {
 public:
  StartLock() {
    const pid_t self = getpid();
    for (pid_t owner = 0; !owner_.compare_exchange_weak(owner, self); owner = 0) {
      if (owner != 0 && owner != self && owner_.compare_exchange_strong(owner, self)) return;
      sched_yield();
    }
  }
  ~StartLock() { owner_.store(0); }

 private:
  static constinit std::atomic<pid_t> owner_;
};
constinit std::atomic<pid_t> StartLock::owner_{0};

// Blocks all signals: no handler of the program may run while a child of clone() shares its memory or while
// the lock is held.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    is_changed_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
  }
  ~NoSignals() {
    if (is_changed_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
  bool is_changed_ = false;
};

bool is_program(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

// Finds the helper: in <libraries>/bin if installed, in the neighbouring bin of a build folder.
bool find_program(PathText& program) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&start_netlink_helper), &self) == 0) return false;
  const char* slash = std::strrchr(self.dli_fname, '/');
  if (self.dli_fname[0] != '/' || slash == nullptr) return false;
  for (const char* place : {"/bin/", "/../bin/"}) {
    program = PathText();
    program.add({self.dli_fname, static_cast<size_t>(slash - self.dli_fname)}).add(place).add(kName);
    if (program.valid() && is_program(program.c_str())) return true;
  }
  return false;
}

// Binds the socket to a random port with the top bit set. Programs may take the port of their first socket to
// be their process ID, so the helper must not use a process ID.
uint32_t bind_anywhere(int socket) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    if (getrandom(&address.nl_pid, sizeof address.nl_pid, GRND_NONBLOCK) != sizeof address.nl_pid) return 0;
    address.nl_pid |= 1u << 31;
    if (bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return address.nl_pid;
    if (errno != EADDRINUSE) return 0;
  }
  return 0;
}

// The arguments of both children, which share this process's memory.
struct Start {
  const char* program;
  int socket;
  int process;
  char* second_stack;
  int flags = CLONE_VM | CLONE_VFORK;  // of clone(2)
  bool has_begun = false;
};

constexpr size_t kStackBytes = 64 << 10;

void put_at(int fd, int number) {
  if (fd == number) {
    syscall(SYS_fcntl, fd, F_SETFD, 0);
  } else {
    syscall(SYS_dup3, fd, number, 0);
  }
}

void close_from(unsigned first) {
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return;
  for (unsigned fd = first; fd < 1024; ++fd) syscall(SYS_close, fd);
}

// Runs the helper, with its standard streams on /dev/null: a reader of the program's output waits until all
// processes have closed it.
int become_helper(void* argument) {
  auto& start = *static_cast<Start*>(argument);
  const auto socket = static_cast<int>(syscall(SYS_fcntl, start.socket, F_DUPFD, kProgram + 1));
  const auto process = static_cast<int>(syscall(SYS_fcntl, start.process, F_DUPFD, kProgram + 1));
  const auto nothing = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR));
  if (socket < 0 || process < 0 || nothing < 0) return 1;
  for (int fd = 0; fd < kSocket; ++fd) put_at(nothing, fd);
  put_at(socket, kSocket);
  put_at(process, kProgram);
  close_from(kProgram + 1);
  syscall(SYS_setsid);
  syscall(SYS_chdir, "/");
  sigset_t none;
  sigemptyset(&none);
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, _NSIG / 8);
  char name[] = "verbena-rdma-netlink";
  char* const words[] = {name, nullptr};
  char* const nothing_said[] = {nullptr};
  // A set-user-ID program may have made its user IDs equal. The helper cannot see who gave the words then.
  char* const* const environment = getauxval(AT_SECURE) != 0 ? nothing_said : environ;
  start.has_begun = true;  // set back to false if execve() returns
  syscall(SYS_execve, start.program, words, environment);
  start.has_begun = false;
  return 1;
}

// Makes the helper a grandchild, so that the program neither waits for it nor is notified of its end.
int leave_helper_to_others(void* argument) {
  auto& start = *static_cast<Start*>(argument);
  return clone(become_helper, start.second_stack, start.flags | SIGCHLD, argument) > 0 ? 0 : 1;
}

// Runs both children on separate stacks while the calling thread waits, as posix_spawn(3) does.
bool run(Start& start) {
  void* stacks = mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stacks == MAP_FAILED) return false;
  char* const first_stack = static_cast<char*>(stacks) + kStackBytes;
  start.second_stack = first_stack + kStackBytes;
  // Without SIGCHLD: the child's end sends no signal, and wait(2) does not find the child.
  int child = clone(leave_helper_to_others, first_stack, start.flags, &start);
  const bool is_fork = child < 0 && errno == EINVAL;
  // qemu-user turns this call into fork(), and only with SIGCHLD. The child then does not write to our
  // memory.
  if (is_fork) child = clone(leave_helper_to_others, first_stack, start.flags | SIGCHLD, &start);
  int status = 1;
  if (child > 0) {
    while (waitpid(child, &status, __WALL) < 0 && errno == EINTR) {
    }
  }
  if (is_fork) start.has_begun = status == 0;
  munmap(stacks, 2 * kStackBytes);
  return start.has_begun;
}

// A helper that this process has started.
struct Helper {
  uint32_t port = 0;
  pid_t program = 0;  // whose it is: it ends with this process
  uid_t user = 0;     // whom it answers
  ino_t socket = 0;   // the number of its socket
};

Helper start_helper() {
  PathText program;
  if (!find_program(program)) return {};
  const UniqueFd socket(
      static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK)));
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  struct stat status;
  if (!socket || !process || fstat(socket.get(), &status) != 0) return {};
  const uint32_t port = bind_anywhere(socket.get());
  Start start{
      .program = program.c_str(), .socket = socket.get(), .process = process.get(), .second_stack = nullptr};
  if (port == 0 || !run(start)) return {};
  return {.port = port, .program = getpid(), .user = getuid(), .socket = status.st_ino};
}

// A line of /proc/net/netlink: "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode".
bool names_socket(const char* line, const Helper& helper) {
  char* at = nullptr;
  strtoull(line, &at, 16);
  if (strtoul(at, &at, 10) != NETLINK_USERSOCK || strtoul(at, &at, 10) != helper.port) return false;
  strtoul(at, &at, 16);
  for (int skipped = 0; skipped < 5; ++skipped) strtol(at, &at, 10);
  return strtoul(at, &at, 10) == helper.socket;
}

// Whether the port is its socket's. When a helper has ended, any user can bind a socket to its port, and
// answer in its place. Where the kernel does not list the sockets this cannot be seen, and is believed.
bool is_at_its_port(const Helper& helper) {
  const UniqueFd list(
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/net/netlink", O_RDONLY | O_CLOEXEC)));
  if (!list) return true;
  char text[4096];
  for (size_t kept = 0;;) {
    // By syscall(), which is no cancellation point: the lock is held here.
    const long size = syscall(SYS_read, list.get(), text + kept, sizeof text - 1 - kept);
    if (size <= 0) return false;
    text[kept + static_cast<size_t>(size)] = '\0';
    char* line = text;
    for (char* end; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      if (names_socket(line, helper)) return true;
    }
    kept = std::strlen(line);
    std::memmove(text, line, kept);
  }
}

}  // namespace

constinit std::atomic<uint32_t> netlink_helper{0};

uint32_t start_netlink_helper(uint32_t gone) {
  const ErrnoKeeper keeper;
  const NoSignals no_signals;
  const StartLock lock;
  static constinit Helper helper;
  const bool is_ours = helper.port != 0 && helper.program == getpid() && helper.user == getuid();
  if (is_ours && helper.port != gone && is_at_its_port(helper)) return helper.port;
  helper = start_helper();
  // A program that once had a helper goes on asking for one.
  if (helper.port != 0) netlink_helper.store(helper.port, std::memory_order_release);
  return helper.port;
}

}  // namespace verbena::sysfs
