// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "agent/event_loop.h"
#include "base/format.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Returns a new, read-only descriptor of the file that `fd` refers to, for clients that must not write to it,
// for example to another process's status page. Returns an empty descriptor and sets errno on failure.
inline UniqueFd reopen_read_only(int fd) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

// Counts the memory of files that were made for clients: lists, traces, long messages. A file uses the
// agent's memory while any process has it open or mapped, or leaves it in a socket. Users get shares of the
// memory (base/quota.h).
//
// The kernel tells whether any process has a file open: it grants a write lease (fcntl(2), F_SETLEASE) only
// on a file that is not open elsewhere. The lease ignores the descriptor from memfd_create().
//
// For the agent's thread.
class HeldFiles {
 public:
  // Memory counts in blocks. All users together may hold 32 MiB.
  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr Quota::Size kBlocks = Quota::Size::of(512);
  // Returns the quota of blocks for an agent that may open `descriptors` descriptors. Each file takes a
  // descriptor and counts as one block at least.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min(kBlocks.all, descriptors / 16));
  }

  // REQUIRES: the loop outlives this object
  HeldFiles(EventLoop& loop, uid_t own, Quota::Size blocks = kBlocks);
  ~HeldFiles();
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // Returns whether the user's programs may hold `bytes` more. Looks for closed files first if necessary.
  bool allows(uid_t user, size_t bytes);
  // Returns a new, read-only descriptor of a memfd, for a client. The file counts as `bytes` for the user
  // until no process has it open; then `on_closed` is called, within about a second. Further calls for the
  // same file neither count it again nor use their `on_closed`. `session`: the session for holds(), or 0.
  // Fails with EDQUOT if the user's programs hold too much.
  Result<UniqueFd> lease(uid_t user, int file, size_t bytes, uint64_t session = 0,
                         std::function<void()> on_closed = {});
  // Returns whether any process has a file open for which lease() was called with this session.
  bool holds(uint64_t session);
  // Returns the number of blocks that the user's programs hold.
  size_t held_by(uid_t user);

 private:
  struct Held {
    uid_t user;
    uint64_t session;
    size_t blocks;
    UniqueFd file;
    std::function<void()> on_closed;
  };
  using Files = std::map<ino_t, Held>;  // by inode number: all files are in one file system

  Files::iterator give_back(Files::iterator file);
  // Drops the files of the user, or of all users, that no process has open.
  void look(std::optional<uid_t> user = std::nullopt);
  void look_later();

  EventLoop& loop_;
  Quota blocks_;
  Files files_;
  std::optional<EventLoop::TimerId> next_look_;
};

}  // namespace verbena::agent
