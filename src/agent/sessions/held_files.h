// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include <sys/stat.h>
#include <sys/types.h>

#include "agent/event_loop.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Counts the memory in files that were made for clients: a list, a trace, a long message. It is the agent's
// memory for as long as any process has the file open or mapped, or lets it lie in a socket. Each user gets a
// share (base/quota.h).
//
// Whether anybody has a file open the kernel says: it grants a write lease (fcntl(2), F_SETLEASE) on a file
// that nobody else has open. The descriptor that memfd_create() gave is not seen by that.
//
// For the agent's thread.
class HeldFiles {
 public:
  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr Quota::Size kBlocks = Quota::Size::of(512);
  // Their number where the agent may open so many descriptors: each file takes one, and counts a block at
  // least.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min(kBlocks.all, descriptors / 16));
  }

  // REQUIRES: the loop outlives this
  HeldFiles(EventLoop& loop, uid_t own, Quota::Size blocks = kBlocks);
  ~HeldFiles();
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // Whether the user's programs may hold so much more.
  bool allows(uid_t user, size_t bytes);
  // Opens a file in memory once more, for a client, that can only read it. It counts as so many bytes until
  // nobody has it open. EDQUOT: the user's programs hold too much. `session` is for holds(); 0:
  // nobody's.
  // `on_closed` is called soon after nobody has it open any more. Only the first call for a file counts it.
  Result<UniqueFd> lend(uid_t user, int file, size_t bytes, uint64_t session = 0,
                        std::function<void()> on_closed = {});
  // Whether a file for the session is open anywhere.
  bool holds(uint64_t session);
  // In blocks.
  size_t held_by(uid_t user);

 private:
  struct Held {
    uid_t user;
    uint64_t session;
    size_t blocks;
    UniqueFd file;
    std::function<void()> on_closed;
  };
  using Files = std::map<ino_t, Held>;  // all are of one file system

  Files::iterator give_back(Files::iterator file);
  // Gives those back that nobody has open; of one user, or all.
  void look(std::optional<uid_t> user = std::nullopt);
  void look_later();

  EventLoop& loop_;
  Quota blocks_;
  Files files_;
  std::optional<EventLoop::TimerId> next_look_;
};

}  // namespace verbena::agent
