// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <utility>

#include <sys/types.h>

#include "base/foreign_socket.h"
#include "base/own_fd.h"
#include "base/quota.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// Counts the files with memory of channels that processes of other users get. This process makes the files'
// memory, so it counts in the control group of this process. The other process may keep a descriptor or a
// mapping for as long as it likes, also after the end of the channel. So a user who has many files gets no
// further ones. The processes of that user are reached by the wire then.
//
// The kernel reports by inotify(7) when nobody has a file any more. A process can keep pages without their
// file, too: in pipes (vmsplice(2)), whose number has no limit of its own. Nothing reports that. So a file
// counts for another hour, and all other users together can keep at most 256 halves' pages (21 MiB) more per
// hour.
//
// The functions are thread-safe. Nothing here blocks.

// The quota of these files. Root and this process's own user have a reserve, and a single other user gets two
// thirds of the rest (base/quota.h).
inline constexpr Quota::Size kKeptFiles{.all = 384, .reserve = 128};
// The time for which a file still counts when nobody has it any more.
inline constexpr Duration kCountedAfterwards = std::chrono::hours(1);

// Returns whether a process of the user may get a file with a channel's memory.
bool may_give_file(uid_t user, TimePoint now = MonotonicClock::now());
// Returns the number of files of ended channels that others still have, of all users. Gives the inotify
// instance back if there are none.
size_t kept_files();

// A file with memory of a channel, for a process of `user`. Counts as that user's until kCountedAfterwards
// after nobody has it any more. A file for root or this process's user counts only from its close() until
// nobody has it. If the kernel cannot report that, because there is no /proc or no inotify instance is left,
// a file counts for good. One thread at a time.
class GivenFile {
 public:
  GivenFile() = default;
  GivenFile(UniqueFd file, uid_t user);
  GivenFile(GivenFile&& other) noexcept { *this = std::move(other); }
  GivenFile& operator=(GivenFile&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(user_, other.user_);
    std::swap(is_counted_, other.is_counted_);
    return *this;
  }
  ~GivenFile() { close(); }

  int get() const { return file_.get(); }
  explicit operator bool() const { return static_cast<bool>(file_); }
  bool is_ours() const { return file_.is_ours(); }
  // Closes the file on another thread, as close(2) may wait for locks that the other process sets.
  // REQUIRES: no other open file refers to the memory
  void close();
  // Closes a file that only processes of this process's user have had. It counts no more.
  void close_own();
  // For a child after fork(), in which the parent's files do not count.
  void abandon() { file_.reset(); }

 private:
  OwnFd file_;
  uid_t user_ = kUnknownUser;
  bool is_counted_ = false;
};

// Users whose processes cannot use an offer's memory, as they are not of this process's user. The agent's
// number of a user does not say so, because the agent may be in another user namespace. So the first process
// of a user that answers an offer proves it by the kernel's credentials.
//
// Returns the file for offers to such a user, or -1 if that is not proven. It takes no memory, and all
// processes of the user get the same one.
int offer_for_stranger(uid_t user);
// Notes that a process of this user has another user number for the kernel than this process. Does nothing if
// `user` is this process's own number, or one that the kernel shows for several users.
void note_stranger(uid_t user);

}  // namespace verbena::engine
