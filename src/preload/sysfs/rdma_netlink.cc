// SPDX-License-Identifier: Apache-2.0
// NETLINK_RDMA sockets, on which programs such as iproute2's `rdma` ask the kernel about RDMA devices.
//
// If there is an agent's directory, such a socket becomes a NETLINK_USERSOCK socket, which carries messages
// between processes. Messages that the program sends to the kernel go to a helper process, which responds.
// All else is left to the kernel: bind, getsockname, poll, receiving, options, dup, close. So this library
// keeps no state about descriptors, and intercepts only three calls that all programs make. In a program
// without such a socket, an intercepted call costs one load and one comparison more.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include <dlfcn.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/detached_thread.h"
#include "base/interpose.h"
#include "base/unique_fd.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {
namespace {

// ---- the helper process that responds on this program's NETLINK_RDMA sockets: verbena-rdma-netlink,
// installed beside this library. The helper ends with the program. Functions are thread-safe and
// async-signal-safe.

// The port of the last helper's NETLINK_USERSOCK socket; 0 if this process never had a helper. That helper
// may have ended.
constinit std::atomic<uint32_t> netlink_helper{0};

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

bool is_program(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

// Finds the helper: in <libraries>/bin if installed, in the neighbouring bin of a build folder.
bool find_program(PathText& program) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&find_program), &self) == 0) return false;
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
  int flags = CLONE_VM | CLONE_VFORK;  // of clone(2) for the helper
  pid_t helper = 0;                    // stays 0 where a child does not share this process's memory
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

// Has execve(2) close all descriptors from this one on, after the calling thread goes on: a close of a file
// whose server does not answer takes any time.
void leave_out_from(unsigned first) {
  if (syscall(SYS_close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (unsigned fd = first; fd < 1024; ++fd) syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
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
  leave_out_from(kProgram + 1);
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
  start.helper = clone(become_helper, start.second_stack, start.flags | SIGCHLD, argument);
  return start.helper > 0 ? 0 : 1;
}

// Runs both children on separate stacks while the calling thread waits, as posix_spawn(3) does.
bool run(Start& start) {
  void* stacks = mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stacks == MAP_FAILED) return false;
  char* const first_stack = static_cast<char*>(stacks) + kStackBytes;
  start.second_stack = first_stack + kStackBytes;
  // Without SIGCHLD: the child's end sends no signal, and wait(2) does not find the child.
  // With CLONE_FILES its end closes no copies of our descriptors.
  int child = clone(leave_helper_to_others, first_stack, start.flags | CLONE_FILES, &start);
  const bool is_fork = child < 0 && errno == EINVAL;
  // qemu-user turns this call into fork(), and only with SIGCHLD and without CLONE_FILES. The child then does
  // not write to our memory.
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
  pid_t pid = 0;      // 0: unknown
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
  return {.port = port, .program = getpid(), .user = getuid(), .socket = status.st_ino, .pid = start.helper};
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

// Whether the helper still has its socket, and so the port. Also false where the kernel does not show its
// descriptors. Numbers of sockets are not reused, so another process with its pid has none of this number.
bool has_its_socket(const Helper& helper) {
  if (helper.pid <= 0) return false;
  PathText link("/proc/"), expected("socket:[");
  link.add_number(static_cast<unsigned>(helper.pid)).add("/fd/").add_number(kSocket);
  expected.add_number(helper.socket).add("]");
  char target[64];
  const long size = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), target, sizeof target);
  return size > 0 && expected.view() == std::string_view(target, static_cast<size_t>(size));
}

// Whether the port is its socket's. When a helper has ended, any user can bind a socket to its port, and
// answer in its place. Other users can make the kernel's list of sockets long, so the helper is looked at
// first. Where the kernel does not list the sockets this cannot be seen, and is believed.
bool is_at_its_port(const Helper& helper) {
  if (has_its_socket(helper)) return true;
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

// Returns the port of a helper that is running for this process; 0 if none can be started. Starts another
// helper if there is none, or if its port is `gone`: the caller saw that this helper has ended. A child of
// fork(), and a program that has changed its user ID, also get another helper. Checks that the helper's
// socket still has the port, because any user can bind a free one. So call this before each request.
// Preserves errno.
uint32_t start_netlink_helper(uint32_t gone) {
  const ErrnoKeeper keeper;
  // No handler of the program may run while a child of clone() shares its memory or while the lock is held.
  const SignalsBlocked no_signals({});
  const StartLock lock;
  static constinit Helper helper;
  const bool is_ours = helper.port != 0 && helper.program == getpid() && helper.user == getuid();
  if (is_ours && helper.port != gone && is_at_its_port(helper)) return helper.port;
  helper = start_helper();
  // A program that once had a helper goes on asking for one.
  if (helper.port != 0) netlink_helper.store(helper.port, std::memory_order_release);
  return helper.port;
}

// Whether a program sends to the kernel on a socket that we replaced. The kernel accepts no messages on
// NETLINK_USERSOCK sockets, so such a message must be for the helper. The arguments are examined only once
// the program has opened a NETLINK_RDMA socket: until then not even an invalid pointer is followed.
[[gnu::noinline]] bool is_to_helper(int socket, const void* address, socklen_t size) {
  if (address == nullptr || size < sizeof(sockaddr_nl)) return false;
  const auto* const to = static_cast<const sockaddr_nl*>(address);
  if (to->nl_family != AF_NETLINK || to->nl_pid != 0 || to->nl_groups != 0) return false;
  const ErrnoKeeper keeper;
  int protocol = -1;
  socklen_t protocol_size = sizeof protocol;
  return getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_size) == 0 &&
         protocol == NETLINK_USERSOCK;
}

bool has_helper() {
  return __builtin_expect(netlink_helper.load(std::memory_order_acquire) != 0, 0);
}

// The maximum wait for earlier responses. The kernel responds at once, the helper a moment later. Its
// response to a socket that was closed may reach the next socket with the same port. So each new socket first
// waits for such responses and discards them, and so it discards messages that others wrote before it was
// connected.
constexpr int kPatienceMs = 10'000;

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Only the helper sees the number: others cannot answer before it does.
uint32_t drawn_sequence() {
  uint32_t sequence = 0;
  return getrandom(&sequence, sizeof sequence, GRND_NONBLOCK) == sizeof sequence ? sequence : 0;
}

// Discards earlier responses: sends a message that does nothing, and waits for its acknowledgement. The
// helper responds in order.
bool wait_for_former_answers(int socket, const sockaddr_nl& helper) {
  const uint32_t sequence = drawn_sequence();
  const nlmsghdr question{.nlmsg_len = NLMSG_HDRLEN,
                          .nlmsg_type = NLMSG_NOOP,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                          .nlmsg_seq = sequence,
                          .nlmsg_pid = 0};
  if (syscall(SYS_sendto, socket, &question, sizeof question, 0, &helper, sizeof helper) < 0) return false;
  const int64_t end = now_ms() + kPatienceMs;
  for (;;) {
    nlmsghdr message{};
    sockaddr_nl from{};
    socklen_t from_size = sizeof from;
    const ssize_t size = recvfrom(socket, &message, sizeof message, MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&from), &from_size);
    const bool is_answer = size >= static_cast<ssize_t>(sizeof message) &&
                           message.nlmsg_type == NLMSG_ERROR && message.nlmsg_seq == sequence &&
                           from.nl_pid == helper.nl_pid;
    if (is_answer) return true;
    const int64_t left = end - now_ms();
    if (left <= 0) {
      errno = ETIMEDOUT;
      return false;
    }
    if (size >= 0 || errno == EINTR || errno == ENOBUFS) continue;
    if (errno != EAGAIN) return false;
    pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
    poll(&wait, 1, static_cast<int>(left));
  }
}

// Connects the socket to the helper: it then accepts messages only from the helper, not from any process.
bool connect_to(int socket, const sockaddr_nl& helper) {
  sockaddr_nl peer{};
  socklen_t size = sizeof peer;
  const bool has_peer = getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  if (has_peer && peer.nl_pid == helper.nl_pid) return true;
  return connect(socket, reinterpret_cast<const sockaddr*>(&helper), sizeof helper) == 0 &&
         wait_for_former_answers(socket, helper);
}

// Calls function(address), which sends to the helper's address. Starts another helper if it is gone.
template <class Function>
ssize_t send_to_helper(int socket, Function function) {
  uint32_t gone = 0;
  for (bool is_second = false;; is_second = true) {
    sockaddr_nl helper{};
    helper.nl_family = AF_NETLINK;
    helper.nl_pid = start_netlink_helper(gone);
    if (helper.nl_pid == 0) {
      errno = ECONNREFUSED;
      return -1;
    }
    const ssize_t sent = connect_to(socket, helper) ? function(helper) : -1;
    if (sent >= 0 || errno != ECONNREFUSED || is_second) return sent;
    gone = helper.nl_pid;  // it has ended just now
  }
}

}  // namespace

INTERPOSE(int, socket, (int domain, int type, int protocol)) {
  if (__builtin_expect(domain == AF_NETLINK && protocol == NETLINK_RDMA, 0)) {
    const bool has_agent = paths::find_state_path(chosen_directory()).valid();
    if (has_agent && start_netlink_helper(0) != 0) {
      const int ours = next_socket(domain, type, NETLINK_USERSOCK);
      if (ours >= 0) return ours;
    }
  }
  return next_socket(domain, type, protocol);
}

INTERPOSE(ssize_t, sendto,
          (int socket, const void* data, size_t size, int flags, const void* address,
           socklen_t address_size)) {
  if (has_helper() && is_to_helper(socket, address, address_size)) {
    return send_to_helper(socket, [&](const sockaddr_nl& helper) {
      return next_sendto(socket, data, size, flags, &helper, sizeof helper);
    });
  }
  return next_sendto(socket, data, size, flags, address, address_size);
}

INTERPOSE(ssize_t, sendmsg, (int socket, const msghdr* message, int flags)) {
  if (has_helper() && message != nullptr && is_to_helper(socket, message->msg_name, message->msg_namelen)) {
    return send_to_helper(socket, [&](const sockaddr_nl& helper) {
      msghdr addressed = *message;
      addressed.msg_name = const_cast<sockaddr_nl*>(&helper);
      return next_sendmsg(socket, &addressed, flags);
    });
  }
  return next_sendmsg(socket, message, flags);
}

}  // namespace verbena::sysfs
