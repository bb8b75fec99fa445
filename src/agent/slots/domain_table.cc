// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/domain_table.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace verbena::agent {
namespace {

// Opens only the inode that the descriptor refers to (O_PATH): no locks of the file, no end of a pipe.
UniqueFd inode_of(int file) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", file).c_str(), O_PATH | O_CLOEXEC));
}

// Returns cached attributes of the file without asking its server, which may never answer.
Result<struct statx> identity_of(int file) {
  struct statx known {};
  constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
  if (::statx(file, "", kFlags, STATX_TYPE | STATX_INO, &known) != 0) return fail(errno);
  return known;
}

}  // namespace

Result<void> DomainTable::open(const Member& member, int file, uint32_t device_index, Mode mode) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return fail(EBADF);
  const auto identity = identity_of(file);
  if (!identity) return fail(identity.error().code);
  size_t open = 0;
  for (auto each = first_of(member.session); each != names_.end() && each->first.session == member.session;
       ++each) {
    ++open;
  }
  if (open >= kMaxOfSession || !members_.allows(member.user)) return fail(ENOMEM);
  const Name name{member.session, member.name};
  if (names_.contains(name)) return fail(EINVAL);
  const FileId id{::makedev(identity->stx_dev_major, identity->stx_dev_minor), identity->stx_ino,
                  device_index};
  auto domain = domains_.find(id);
  if (domain != domains_.end()) {
    if (mode.exclusive) return fail(EINVAL);
  } else {
    if (!mode.create) return fail(EAGAIN);
    UniqueFd inode = inode_of(file);
    if (!inode) return fail(errno);
    domain = domains_.emplace(id, Domain{ClientFile(std::move(inode), member.user, closer_), {}}).first;
  }
  auto& members = domain->second.members;
  try {
    members.emplace(member.slot, name);
    names_.emplace(name, Opened{id, member.slot, member.user});
    members_.take(member.user);
  } catch (const std::bad_alloc&) {
    names_.erase(name);
    members.erase({member.slot, name});
    if (members.empty()) domains_.erase(domain);
    return fail(ENOMEM);
  }
  return {};
}

DomainTable::Names::const_iterator DomainTable::remove(Names::const_iterator name) {
  const Opened& opened = name->second;
  const auto domain = domains_.find(opened.domain);
  domain->second.members.erase({opened.slot, name->first});
  if (domain->second.members.empty()) domains_.erase(domain);
  members_.give_back(opened.user);
  return names_.erase(name);
}

Result<void> DomainTable::close(uint64_t session, uint64_t name) {
  const auto found = names_.find({session, name});
  if (found == names_.end()) return fail(EINVAL);
  remove(found);
  return {};
}

void DomainTable::close_all(uint64_t session) {
  for (auto each = first_of(session); each != names_.end() && each->first.session == session;) {
    each = remove(each);
  }
}

void DomainTable::close_slot(uint64_t session, uint32_t slot) {
  for (auto each = first_of(session); each != names_.end() && each->first.session == session;) {
    each = each->second.slot == slot ? remove(each) : std::next(each);
  }
}

std::optional<DomainTable::Member> DomainTable::find(uint64_t session, uint64_t name, uint32_t slot) const {
  const auto found = names_.find({session, name});
  if (found == names_.end()) return std::nullopt;
  const auto& members = domains_.at(found->second.domain).members;
  const auto at = members.lower_bound({slot, Name{}});
  if (at == members.end() || at->first != slot) return std::nullopt;
  const Name& there = at->second;
  return Member{there.session, there.name, slot, names_.at(there).user};
}

std::optional<uint32_t> DomainTable::slot_of(uint64_t session, uint64_t name) const {
  const auto found = names_.find({session, name});
  if (found == names_.end()) return std::nullopt;
  return found->second.slot;
}

}  // namespace verbena::agent
