// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/unread_files.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mutex_at_fork.h"
#include "base/own_fd.h"

namespace verbena::engine {
namespace {

bool is_unread(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

// Sockets whose other ends have unread messages.
class UnreadFiles {
 public:
  bool allows(uid_t user) {
    forget_read();
    const auto of_user = std::ranges::count(sockets_, user, &Unread::user);
    return sockets_.size() < kMaxUnread && of_user < static_cast<std::ptrdiff_t>(kMaxUnreadOfUser);
  }
  // Channels that were open may bring more than kMaxUnread.
  void add(uid_t user, UniqueFd socket) { sockets_.push_back({user, std::move(socket)}); }
  // For a child after fork(): the parent asks.
  void forget() { sockets_.clear(); }

 private:
  struct Unread {
    uid_t user;
    OwnFd socket;
  };

  // The other process has read the messages or closed its end, or the application has closed ours.
  void forget_read() {
    std::erase_if(sockets_, [](Unread& each) {
      if (each.socket.settle() && is_unread(each.socket.get())) return false;
      discard_socket(each.socket.take(), each.user);
      return true;
    });
  }

  std::vector<Unread> sockets_;
};

std::mutex& mutex() {
  static constinit std::mutex one;
  return one;
}

// Lives until the end of the process: threads may use it while the program exits.
UnreadFiles& unread() {
  static UnreadFiles& one = *new UnreadFiles;
  return one;
}

[[maybe_unused]] const int locked = lock_at_fork<mutex>();
[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, [] { unread().forget(); });

}  // namespace

bool may_send_file(uid_t user) {
  if (user == ::geteuid()) return true;
  const std::lock_guard lock(mutex());
  return unread().allows(user);
}

void hang_up_unread(ForeignSocket& socket, uid_t user) {
  if (user != ::geteuid() && socket.is_ours() && is_unread(socket.get())) {
    UniqueFd copy(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    try {
      const std::lock_guard lock(mutex());
      if (copy) unread().add(user, std::move(copy));
    } catch (const std::bad_alloc&) {  // counts for nobody
    }
  }
  socket.hang_up_later(user);
}

}  // namespace verbena::engine
