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

// Sockets whose other ends may have unread descriptors.
class UnreadFiles {
 public:
  bool allows(uid_t user, TimePoint now) {
    forget_read();
    size_t all = ended_.size();
    auto of_user = static_cast<size_t>(std::ranges::count(ended_, user, &Ended::user));
    for (const Live& each : live_) {
      if (now - each.since < kUnreadAfter) continue;
      ++all;
      of_user += each.user == user ? 1 : 0;
    }
    return all < kMaxUnread && of_user < kMaxUnreadOfUser;
  }
  void add_live(const SentFiles& owner, uid_t user, int socket, TimePoint now) {
    live_.push_back({&owner, user, socket, now});
  }
  // Returns whether the descriptors may still be unread.
  bool remove_live(const SentFiles& owner) {
    return std::erase_if(live_, [&](const Live& each) { return each.owner == &owner; }) != 0;
  }
  // Channels that were open may bring more than kMaxUnread.
  void add_ended(uid_t user, UniqueFd socket) { ended_.push_back({user, std::move(socket)}); }
  // For a child after fork(): the parent asks.
  void forget() {
    ended_.clear();
    live_.clear();
  }

 private:
  struct Live {
    const SentFiles* owner;
    uid_t user;
    int socket;
    TimePoint since;
  };
  struct Ended {
    uid_t user;
    OwnFd socket;
  };

  // The other process has read the messages or closed its end, or the application has closed ours. Later
  // messages of a channel have no descriptors.
  void forget_read() {
    std::erase_if(live_, [](const Live& each) { return !is_unread(each.socket); });
    std::erase_if(ended_, [](Ended& each) {
      if (each.socket.settle() && is_unread(each.socket.get())) return false;
      discard_socket(each.socket.take(), each.user);
      return true;
    });
  }

  std::vector<Live> live_;
  std::vector<Ended> ended_;
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

bool may_send_file(uid_t user, TimePoint now) {
  if (user == ::geteuid()) return true;
  const std::lock_guard lock(mutex());
  return unread().allows(user, now);
}

// If there is no memory, the descriptors count for nobody.
void SentFiles::send(const ForeignSocket& socket, uid_t user, TimePoint now) try {
  if (user == ::geteuid()) return;
  forget();
  const std::lock_guard lock(mutex());
  unread().add_live(*this, user, socket.get(), now);
  is_listed_ = true;
} catch (const std::bad_alloc&) {
}

bool SentFiles::forget() {
  if (!std::exchange(is_listed_, false)) return false;
  const std::lock_guard lock(mutex());
  return unread().remove_live(*this);
}

void SentFiles::hang_up(ForeignSocket& socket, uid_t user) {
  if (forget() && socket.is_ours() && is_unread(socket.get())) {
    UniqueFd copy(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    try {
      const std::lock_guard lock(mutex());
      if (copy) unread().add_ended(user, std::move(copy));
    } catch (const std::bad_alloc&) {  // counts for nobody
    }
  }
  socket.hang_up_later(user);
}

}  // namespace verbena::engine
