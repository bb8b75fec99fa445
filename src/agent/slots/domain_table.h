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

// The XRC domains that processes have open: one for each inode and device of ours, as with the kernel's
// uverbs. A process that can open the file may join; there is no other right to it.
class DomainTable {
 public:
  // A process's place in a domain: where its queues and targets are, and what it calls the domain.
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

  // A process has no use for more.
  static constexpr size_t kMaxOfSession = 256;
  // Members of all users together, where the agent may open so many descriptors (RLIMIT_NOFILE): each domain
  // costs one.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(8192, descriptors / 8));
  }

  // REQUIRES: the closer outlives this
  DomainTable(ForeignCloser& closer, uid_t own, Quota::Size members)
      : closer_(closer), members_(members, own) {}

  // Takes `member` into the domain of the file. EAGAIN: there is none, and it is not to be made; EINVAL:
  // there is one and it was to be new, or the member has another domain of that name; ENOMEM: the session, or
  // its user, has too many; EBADF: the descriptor does not show that its owner could open the file. Waits for
  // no file's server.
  Result<void> open(const Member& member, int file, uint32_t device_index, Mode mode);
  // EINVAL: the session has no domain of that name.
  Result<void> close(uint64_t session, uint64_t name);
  void close_all(uint64_t session);
  // A session gives a slot back.
  void close_slot(uint64_t session, uint32_t slot);

  // Who has the domain open, with this slot, that the session calls so.
  std::optional<Member> find(uint64_t session, uint64_t name, uint32_t slot) const;
  // The slot that the session has joined it with.
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
    ClientFile inode;                             // keeps its number from being used again
    std::set<std::pair<uint32_t, Name>> members;  // by slot
  };
  // A domain that a session has open.
  struct Opened {
    FileId domain;
    uint32_t slot = 0;
    uid_t user = 0;
  };
  // Those of a session lie together: nobody is looked for among the members of others.
  using Names = std::map<Name, Opened>;

  Names::const_iterator first_of(uint64_t session) const { return names_.lower_bound({session, 0}); }
  Names::const_iterator remove(Names::const_iterator name);

  ForeignCloser& closer_;
  Quota members_;
  std::map<FileId, Domain> domains_;
  Names names_;
};

}  // namespace verbena::agent
