// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/kept_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/shm/channel_memory.h"
#include "base/foreign_socket.h"
#include "base/mutex_at_fork.h"
#include "base/paths/users.h"

namespace verbena::engine {

namespace {

constexpr int kUnwatched = -1;

// Watches files until their last descriptor or mapping is gone, in any process. The guard mutex() is held in
// each call.
class KeptFiles {
 public:
  size_t size(TimePoint now) {
    take_news(now);
    return is_beyond_count_ ? std::numeric_limits<size_t>::max() : kept_.size();
  }
  bool allows(uid_t user, TimePoint now) {
    take_news(now);
    const auto end = std::ranges::find_if(gone_, [now](const Gone& one) { return one.counts_until > now; });
    for (auto each = gone_.begin(); each != end; ++each) shares_->give_back(each->user);
    gone_.erase(gone_.begin(), end);
    return !is_beyond_count_ && shares_->allows(user);
  }
  // Counts a file that another user's process is about to get. Returns whether it counts.
  bool begin(uid_t user) try {
    if (user == kUnknownUser || shares_->is_trusted(user)) return false;
    shares_->take(user);
    return true;
  } catch (const std::bad_alloc&) {
    is_beyond_count_ = true;
    return false;
  }
  void cancel(uid_t user) { shares_->give_back(user); }
  // Counts a file that this process closes. `file`: -1 if its number was lost. `is_counted`: see begin().
  void add(int file, uid_t user, bool is_counted, TimePoint now) try {
    take_news(now);
    kept_.reserve(kept_.size() + 1);
    gone_.reserve(gone_.size() + kept_.size() + 1);
    if (!is_counted) shares_->take(user);
    kept_.push_back({user, file < 0 ? kUnwatched : watch(file)});
  } catch (const std::bad_alloc&) {
    is_beyond_count_ = true;
  }
  // For a child after fork(): the parent must get the news.
  void forget() {
    news_.reset();
    shares_.emplace(kKeptFiles, ::geteuid());
    kept_.clear();
    gone_.clear();
  }

 private:
  struct Kept {
    uid_t user;
    int watch;  // number of the inotify watch, or kUnwatched
  };
  struct Gone {
    uid_t user;
    TimePoint counts_until;
  };

  // A memfd has no name, so it is deleted when the last descriptor and mapping is gone. Then the kernel also
  // ends the watch.
  int watch(int file) {
    if (!news_.settle()) news_ = OwnFd(UniqueFd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)));
    std::array<char, 32> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file);
    return news_ ? ::inotify_add_watch(news_.get(), path.data(), IN_DELETE_SELF) : kUnwatched;
  }

  void take_news(TimePoint now) {
    alignas(inotify_event) std::array<char, 4096> buffer;
    while (news_.is_ours()) {
      const long bytes = ::syscall(SYS_read, news_.get(), buffer.data(), buffer.size());
      if (bytes <= 0) break;
      for (size_t at = 0; at < static_cast<size_t>(bytes);) {
        inotify_event event;
        std::memcpy(&event, buffer.data() + at, sizeof event);
        at += sizeof event + event.len;
        if ((event.mask & IN_IGNORED) != 0) end_watch(event.wd, now);
      }
    }
    // A user has 128 inotify instances. To close one can take long.
    if (std::ranges::all_of(kept_, [](const Kept& one) { return one.watch == kUnwatched; }))
      discard(news_.take());
  }

  // Root and this process's user need no pipes to keep this program from working. add() has made the room.
  void end_watch(int watch, TimePoint now) {
    const auto gone = std::ranges::find(kept_, watch, &Kept::watch);
    if (gone == kept_.end()) return;
    if (shares_->is_trusted(gone->user)) {
      shares_->give_back(gone->user);
    } else {
      gone_.push_back({gone->user, now + kCountedAfterwards});
    }
    kept_.erase(gone);
  }

  std::optional<Quota> shares_{std::in_place, kKeptFiles, ::geteuid()};  // never empty
  OwnFd news_;  // an inotify instance while files are watched
  std::vector<Kept> kept_;
  std::vector<Gone> gone_;        // that nobody has any more, in the order of their times
  bool is_beyond_count_ = false;  // there was no memory to count a file
};

std::mutex& mutex() {
  static constinit std::mutex one;
  return one;
}

// Lives until the end of the process: threads may use it while the program exits.
KeptFiles& kept() {
  static KeptFiles& one = *new KeptFiles;
  return one;
}

// Each has a file of its own, because a process that has a file can make others wait for its locks.
class Strangers {
 public:
  int offer_for(uid_t user) {
    const auto known = find(user);
    return known != known_.end() && known->offer.settle() ? known->offer.get() : -1;
  }
  void note(uid_t user) try {
    if (offer_for(user) >= 0) return;
    auto offer = ChannelMapping::make_empty_file();
    if (!offer) return;
    const auto known = find(user);
    if (known != known_.end()) return void(known->offer = std::move(*offer));
    known_.reserve(kMax);
    if (known_.size() == kMax) {
      discard(known_.front().offer.take(), known_.front().user);  // the user may hold locks on the file
      known_.erase(known_.begin());
    }
    known_.push_back({user, ::geteuid(), std::move(*offer)});
  } catch (const std::bad_alloc&) {
    return;  // noted by the next process of the user
  }

 private:
  static constexpr size_t kMax = 64;
  struct Known {
    uid_t user;
    uid_t to;  // this process's effective user number then
    OwnFd offer;
  };
  std::vector<Known>::iterator find(uid_t user) {
    return std::ranges::find_if(
        known_, [&](const Known& each) { return each.user == user && each.to == ::geteuid(); });
  }

  std::vector<Known> known_;
};

Strangers& strangers() {
  static Strangers& one = *new Strangers;
  return one;
}

[[maybe_unused]] const int locked = lock_at_fork<mutex>();
[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, [] { kept().forget(); });

}  // namespace

bool may_give_file(uid_t user, TimePoint now) {
  const std::lock_guard lock(mutex());
  return kept().allows(user, now);
}

GivenFile::GivenFile(UniqueFd file, uid_t user) : file_(std::move(file)), user_(user) {
  const std::lock_guard lock(mutex());
  is_counted_ = file_ && kept().begin(user);
}

void GivenFile::close() {
  if (!file_) return;
  UniqueFd file = file_.take();
  {
    const std::lock_guard lock(mutex());
    kept().add(file.get(), user_, std::exchange(is_counted_, false), MonotonicClock::now());
  }
  discard(std::move(file), user_);
}

void GivenFile::close_own() {
  file_.reset();
  const std::lock_guard lock(mutex());
  if (std::exchange(is_counted_, false)) kept().cancel(user_);
}

int offer_for_stranger(uid_t user) {
  const std::lock_guard lock(mutex());
  return strangers().offer_for(user);
}

void note_stranger(uid_t user) {
  if (user == kUnknownUser || user == ::geteuid() || paths::is_ambiguous(user)) return;
  const std::lock_guard lock(mutex());
  strangers().note(user);
}

size_t kept_files() {
  const std::lock_guard lock(mutex());
  return kept().size(MonotonicClock::now());
}

}  // namespace verbena::engine
