// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/held_files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include <fcntl.h>

namespace verbena::agent {
namespace {

constexpr Duration kLookInterval = std::chrono::seconds(1);

// REQUIRES: the file is open for reading only
bool is_open_elsewhere(int file) {
  if (::fcntl(file, F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN;
  ::fcntl(file, F_SETLEASE, F_UNLCK);
  return false;
}

size_t blocks_of(size_t bytes) {
  return std::max<size_t>(1, (bytes + HeldFiles::kBlockBytes - 1) / HeldFiles::kBlockBytes);
}

}  // namespace

// Ignores SIGIO, which the kernel sends if a process opens a file during a lease.
HeldFiles::HeldFiles(EventLoop& loop, uid_t own, Quota::Size blocks) : loop_(loop), blocks_(blocks, own) {
  ::signal(SIGIO, SIG_IGN);
}

HeldFiles::~HeldFiles() {
  if (next_look_) loop_.cancel(*next_look_);
}

bool HeldFiles::allows(uid_t user, size_t bytes) {
  if (blocks_.allows(user, blocks_of(bytes))) return true;
  look(user);
  return blocks_.allows(user, blocks_of(bytes));
}

Result<UniqueFd> HeldFiles::lease(uid_t user, int file, size_t bytes, uint64_t session,
                                  std::function<void()> on_closed) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return fail(errno);
  UniqueFd theirs = reopen_read_only(file);
  if (!theirs) return fail(errno);
  if (files_.contains(status.st_ino)) return theirs;
  if (!allows(user, bytes)) return fail(EDQUOT);
  const size_t blocks = blocks_of(bytes);
  UniqueFd ours = reopen_read_only(file);
  if (!ours) return fail(errno);
  blocks_.take(user, blocks);
  files_.emplace(status.st_ino, Held{user, session, blocks, std::move(ours), std::move(on_closed)});
  look_later();
  return theirs;
}

bool HeldFiles::holds(uint64_t session) {
  for (auto file = files_.begin(); file != files_.end();) {
    if (file->second.session != session) {
      ++file;
    } else if (is_open_elsewhere(file->second.file.get())) {
      return true;
    } else {
      file = give_back(file);
    }
  }
  return false;
}

size_t HeldFiles::held_by(uid_t user) {
  look(user);
  return blocks_.of(user);
}

HeldFiles::Files::iterator HeldFiles::give_back(Files::iterator file) {
  blocks_.give_back(file->second.user, file->second.blocks);
  const auto on_closed = std::move(file->second.on_closed);
  const auto next = files_.erase(file);
  if (on_closed) on_closed();
  return next;
}

void HeldFiles::look(std::optional<uid_t> user) {
  for (auto file = files_.begin(); file != files_.end();) {
    const Held& held = file->second;
    const bool stays = (user && held.user != *user) || is_open_elsewhere(held.file.get());
    file = stays ? std::next(file) : give_back(file);
  }
}

// The agent's own descriptor keeps the memory, too. So it is closed at most a second after all others.
void HeldFiles::look_later() {
  if (next_look_ || files_.empty()) return;
  next_look_ = loop_.at(MonotonicClock::now() + kLookInterval, [this] {
    next_look_.reset();
    look();
    look_later();
  });
}

}  // namespace verbena::agent
