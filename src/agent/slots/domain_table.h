// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <sys/types.h>

#include "agent/sessions/client_files.h"
#include "base/quota.h"
#include "base/result.h"

namespace verbena::agent {

// Records which processes have which XRC domains open. A domain is identified by an inode and a device, as in
// the kernel's uverbs. Any process that can open the file may join; there is no other access check.
class DomainTable {
 public:
  // A process that has joined a domain. The process's shared receive queues and XRC target QPs of this domain
  // are in `slot`. `name` is a number by which this process identifies the domain to the agent.
  struct Member {
    uint64_t session = 0;
    uint64_t name = 0;
    uint32_t slot = 0;
    uid_t user = 0;
  };
  struct Mode {
    bool create = false;
    bool exclusive = false;
  };

  // Maximum number of domains that one session may have open.
  static constexpr size_t kMaxOfSession = 256;
  // Returns the maximum number of members of all users together, for an agent that may open this many
  // descriptors. Each domain keeps one descriptor open.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(8192, descriptors / 16));
  }

  // `own` is the agent's user. REQUIRES: the closer outlives this object
  DomainTable(ForeignCloser& closer, uid_t own, Quota::Size members)
      : closer_(closer), members_(members, own) {}

  // Adds `member` to the domain of the file, and creates the domain if it does not exist. EAGAIN if it does
  // not exist and `mode.create` is false. EINVAL if it exists and `mode.exclusive` is true, or if the session
  // uses `member.name` already. ENOMEM if the session or its user has too many domains open. EBADF for an
  // O_PATH descriptor, which does not prove that its owner could open the file. Never waits for a file
  // server.
  Result<void> open(const Member& member, int file, uint32_t device_index, Mode mode);
  // Ends the session's membership in the domain. EINVAL if the session has no domain `name`.
  Result<void> close(uint64_t session, uint64_t name);
  void close_all(uint64_t session);
  // Closes the domains that the session has opened with this slot. Called when the slot's lease ends.
  void close_slot(uint64_t session, uint32_t slot);

  // Returns the process that has joined the session's domain `name` with this slot, or nullopt.
  std::optional<Member> find(uint64_t session, uint64_t name, uint32_t slot) const;
  // Returns the slot with which the session has joined its domain `name`, or nullopt if not joined.
  std::optional<uint32_t> slot_of(uint64_t session, uint64_t name) const;

 private:
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    uint32_t device_index = 0;
    friend auto operator<=>(const FileId&, const FileId&) = default;
  };
  struct Name {
    uint64_t session = 0;
    uint64_t name = 0;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  struct Domain {
    ClientFile inode;                             // keeps the inode number from being reused
    std::set<std::pair<uint32_t, Name>> members;  // by slot
  };
  // A domain that a session has open.
  struct Opened {
    FileId domain;
    uint32_t slot = 0;
    uid_t user = 0;
  };
  // Ordered by session, so that a search looks only at the names of one session.
  using Names = std::map<Name, Opened>;

  Names::const_iterator first_of(uint64_t session) const { return names_.lower_bound({session, 0}); }
  Names::const_iterator remove(Names::const_iterator name);

  ForeignCloser& closer_;
  Quota members_;
  std::map<FileId, Domain> domains_;
  Names names_;
};

}  // namespace verbena::agent
