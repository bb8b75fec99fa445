// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/standby_launcher.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include <linux/close_range.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "control/model/agent_process.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

constexpr std::byte kReady[]{std::byte{1}}, kNotReady[]{std::byte{0}};

void launch() {
  const auto started = control::start_agent_alone("/proc/self/exe", {"--keep-vault"});
  if (!started) log_warning("no standby process can be started: errno {}", started.error().code);
}

// Runs on the thread. Makes bare system calls: the thread sanitizer takes a descriptor's number for the same
// descriptor in all threads.
class Launcher {
 public:
  explicit Launcher(int requests) : requests_(requests) {}

  // Returns when the other end is shut down.
  void run() const {
    const bool is_ready = leave_table();
    ::syscall(SYS_sendto, requests_, is_ready ? kReady : kNotReady, sizeof kReady, MSG_NOSIGNAL, nullptr, 0);
    if (!is_ready) return;
    while (take_request()) {
      launch();
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

  // Makes the descriptor that comes with a request the standard error. Without one, the standby has none.
  bool take_request() const {
    std::byte content[sizeof kReady];
    iovec part{content, sizeof content};
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
    if (const cmsghdr* const brought = CMSG_FIRSTHDR(&message); brought != nullptr) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(brought), sizeof file);
      if (::syscall(SYS_dup3, file, STDERR_FILENO, 0) >= 0) ::syscall(SYS_close, file);
    }
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
  std::byte answer[sizeof kReady];
  const auto answered = control::wait_for_message(requests_.get(), answer, 0);
  has_own_table_ = answered && answer[0] == kReady[0];
}

void StandbyLauncher::start() {
  if (!has_own_table_) return launch();
  const int standard_error = STDERR_FILENO;
  const auto sent = control::send_message(requests_.get(), kReady, {&standard_error, 1});
  if (!sent) log_warning("no standby process can be started: errno {}", sent.error().code);
}

}  // namespace verbena::agent
