// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <sys/stat.h>
#include <sys/types.h>

#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena {

// The maximum number of descriptors that wait in one ForeignPile.
inline constexpr size_t kMaxDiscarded = 1024;

// Computes how long a user's waiting descriptors are left alone after the handling of one took long. A user
// can make any close take long, by epoll(7) watches on a socket's other end, and so use up a program's
// processor time. The pauses limit that time. Remembers only the 32 users whose pauses end last.
//
// One thread at a time. Pure: no clock, no system calls.
class UserPauses {
 public:
  // The longest processor time of one descriptor that causes no pause. Interrupts alone take less.
  static constexpr Duration kNormal = std::chrono::milliseconds(1);
  // A pause takes this many times as long as the handling before it.
  static constexpr int kFactor = 10;

  // Records that handling a descriptor of the user took `taken` of processor time and ended at `now`.
  void note(uid_t user, Duration taken, TimePoint now) {
    if (taken <= kNormal) return;
    const auto known = std::ranges::find(pauses_, user, &Pause::user);
    Pause& pause = known != pauses_.end() ? *known : *std::ranges::min_element(pauses_, {}, &Pause::until);
    pause = {user, now + taken * kFactor};
  }
  // Returns the time from which on descriptors of the user may be handled; TimePoint::min() without a pause.
  TimePoint until(uid_t user) const {
    const auto known = std::ranges::find(pauses_, user, &Pause::user);
    return known != pauses_.end() ? known->until : TimePoint::min();
  }

 private:
  struct Pause {
    uid_t user = 0;
    TimePoint until = TimePoint::min();
  };
  std::array<Pause, 32> pauses_{};
};

// The identity of an open file that another process has sent. Comparing identities shows whether the
// descriptor's number was reused for another file. No call here blocks for any kind of file. The sender
// cannot change the identity, unlike the signal number by which OwnFd identifies some files.
class ForeignFile {
 public:
  ForeignFile() = default;
  explicit ForeignFile(int fd);
  friend bool operator==(const ForeignFile&, const ForeignFile&) = default;

  // Whether close() of a descriptor returns at once if another descriptor of the same open file remains. True
  // for sockets, pipes, character devices, anonymous files and memfds. False for other files: each close()
  // may ask the file system. `fd`: a descriptor of the file
  bool has_quick_close(int fd) const;

 private:
  static constexpr mode_t kAnonymous = 0;  // of eventfd(2), epoll_create(2) and others
  static constexpr mode_t kUnknown = ~mode_t{};

  mode_t kind_ = kUnknown;
  std::array<uint64_t, 2> identity_{};
};

// Handles descriptors on a background thread, for example closes them. Uses no locks and no allocation, so
// that a pile is consistent at any moment of a fork() or an exit.
//
// A descriptor may wait for as long as another process wishes. Meanwhile the program may close all
// descriptors and open files of its own, which get the lowest free numbers. So the pile moves a descriptor to
// a high number, if closing the old number is quick (ForeignFile::has_quick_close()). The pile ignores a
// descriptor whose number has come to refer to another file.
//
// Thread-safe, except forget().
class ForeignPile {
 public:
  // Does a part of the work on a descriptor, on the pile's thread. Returns the descriptor if work is left,
  // else an empty UniqueFd.
  using Piece = UniqueFd (*)(UniqueFd fd, uid_t user);

  // `thread`: the thread's name, at most 15 characters
  constexpr ForeignPile(const char* thread, Piece piece) : thread_(thread), piece_(piece) {}

  // Passes a descriptor to the thread, and starts the thread if none runs. Never blocks. If kMaxDiscarded
  // descriptors wait, logs a warning and leaves this one open. `user`: the user that the descriptor came from
  void add(UniqueFd fd, uid_t user);
  // Returns the number of descriptors that wait.
  size_t size() const;
  // Returns the number of descriptors of the user that wait.
  size_t size_of(uid_t user) const;
  // For a child after fork(): the thread does not exist there, and the descriptors are the parent's to
  // handle. The child's copies stay open, because the child may close all descriptors before it calls us.
  void forget();

 private:
  enum class State : uint8_t { kFree, kTaken, kWaits };
  struct Place {
    std::atomic<State> state{State::kFree};
    std::atomic<uid_t> user{0};
    int fd = -1;
    ForeignFile file;
  };

  Place* take_place();
  void put(UniqueFd fd, uid_t user);
  TimePoint handle_all();
  void handle(Place& place);
  static void* work(void* pile);

  const char* const thread_;
  const Piece piece_;
  std::array<Place, kMaxDiscarded> places_{};
  std::atomic<bool> at_work_{false};
  UserPauses pauses_;  // for the thread
};

}  // namespace verbena
