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

#include "agent/sessions/foreign_closer.h"
#include "base/quota.h"
#include "base/result.h"

namespace verbena::agent {

// The XRC domains that processes have open: one per inode and device, as in the kernel's uverbs. Any process
// that can open the file may join; there is no other access check.
class DomainTable {
 public:
  // A process's membership in a domain. The process's shared receive queues and XRC target QPs of the domain
  // are in `slot`. `name` is the process's own number for the domain.
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

  // Maximum number of domains of one session. A process has no use for more.
  static constexpr size_t kMaxOfSession = 256;
  // Maximum number of members of all users together, for an agent with this RLIMIT_NOFILE: each domain costs
  // a descriptor.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(8192, descriptors / 8));
  }

  // REQUIRES: the closer outlives this object
  DomainTable(ForeignCloser& closer, uid_t own, Quota::Size members)
      : closer_(closer), members_(members, own) {}

  // Adds `member` to the domain of the file. EAGAIN: the domain does not exist and `mode` does not create it.
  // EINVAL: it exists but `mode` is exclusive, or the session uses the name for another domain. ENOMEM: the
  // session or its user has too many. EBADF: the descriptor does not prove that its owner could open the
  // file. Never waits for a file server.
  Result<void> open(const Member& member, int file, uint32_t device_index, Mode mode);
  // EINVAL: the session has no domain of that name.
  Result<void> close(uint64_t session, uint64_t name);
  void close_all(uint64_t session);
  // Closes the domains that the session has opened with this slot. Called when the slot is taken back.
  void close_slot(uint64_t session, uint32_t slot);

  // Returns the member with this slot in the domain that the session calls `name`.
  std::optional<Member> find(uint64_t session, uint64_t name, uint32_t slot) const;
  // Returns the slot with which the session has joined the domain.
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
