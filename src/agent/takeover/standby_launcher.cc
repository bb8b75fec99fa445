// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/standby_launcher.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <system_error>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "control/model/agent_process.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

// The messages in both directions. To the launcher: a request; the content does not matter. From it: whether
// it has its own table, then the errno value of each start that failed.
using Message = int;
constexpr Message kRequest = 0;

// Returns 0 or an errno value.
int launch() {
  const auto started = control::start_agent_alone("/proc/self/exe", {"--keep-vault"});
  return started ? 0 : started.error().code;
}

void warn(int error) {
  log_warning("no standby process can be started: errno {}", error);
}

// Runs on the thread. Makes bare system calls: the thread sanitizer takes a descriptor's number for the same
// descriptor in all threads. Logs nothing: the first line would start the log's thread, with this table.
class Launcher {
 public:
  explicit Launcher(int requests) : requests_(requests) {}

  // Returns when the other end is shut down.
  void run() const {
    const bool has_own_table = leave_table();
    answer(has_own_table ? 0 : ENOSYS);
    if (!has_own_table) return;
    while (take_request()) {
      if (const int error = launch(); error != 0) answer(error);
      ::syscall(SYS_close, STDERR_FILENO);
    }
  }

 private:
  // Gives the calling thread a table of its own, in which there is one descriptor. Containers often forbid
  // unshare(2), but not this call.
  bool leave_table() const {
    const auto own = static_cast<unsigned>(requests_);
    if (::syscall(SYS_close_range, own + 1, ~0u, CLOSE_RANGE_UNSHARE) != 0) return false;
    if (own > 0) ::syscall(SYS_close_range, 0u, own - 1, 0);
    return true;
  }

  void answer(Message message) const {
    ::syscall(SYS_sendto, requests_, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0);
  }

  // Makes the descriptor that comes with a request the standard error. Without one, that is /dev/null.
  bool take_request() const {
    Message content = 0;
    iovec part{&content, sizeof content};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    long got = 0;
    do {
      got = ::syscall(SYS_recvmsg, requests_, &message, 0);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    int file = -1;
    if (const cmsghdr* const brought = CMSG_FIRSTHDR(&message); brought != nullptr) {
      std::memcpy(&file, CMSG_DATA(brought), sizeof file);
    } else {
      file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY));
    }
    if (::syscall(SYS_dup3, file, STDERR_FILENO, 0) >= 0) ::syscall(SYS_close, file);
    return true;
  }

  const int requests_;
};

}  // namespace

StandbyLauncher::~StandbyLauncher() {
  if (!thread_.joinable()) return;
  ::shutdown(requests_.get(), SHUT_RDWR);  // children of fork(2) may have copies
  thread_.join();
}

void StandbyLauncher::begin() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  requests_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  try {
    thread_ = std::thread([launcher = Launcher(theirs.get())] { launcher.run(); });
  } catch (const std::system_error&) {
    return;
  }
  const auto answer = read_answer(true);
  has_own_table_ = answer && *answer == 0;
}

void StandbyLauncher::start() {
  if (!has_own_table_) {
    if (const int error = launch(); error != 0) warn(error);
    return;
  }
  while (const auto error = read_answer(false)) warn(*error);
  const auto request = std::as_bytes(std::span(&kRequest, 1));
  const int standard_error = STDERR_FILENO;
  auto sent = control::send_message(requests_.get(), request, {&standard_error, 1});
  // The user has too many descriptors in flight (unix(7)).
  if (!sent && sent.error().code == ETOOMANYREFS) sent = control::send_message(requests_.get(), request);
  if (!sent) warn(sent.error().code);
}

std::optional<int> StandbyLauncher::read_answer(bool waits) const {
  Message answer = 0;
  const auto got = ::recv(requests_.get(), &answer, sizeof answer, waits ? 0 : MSG_DONTWAIT);
  return got == sizeof answer ? std::optional(answer) : std::nullopt;
}

}  // namespace verbena::agent
