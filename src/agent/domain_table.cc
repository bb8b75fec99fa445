// SPDX-License-Identifier: Apache-2.0
#include "agent/domain_table.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/format.h"

namespace verbena::agent {
namespace {

// The inode and nothing else of what the descriptor stands for: no lock of it, no end of a pipe.
UniqueFd inode_of(int file) {
  return UniqueFd(::open(verbena::format("/proc/self/fd/{}", file).c_str(), O_PATH | O_CLOEXEC));
}

// What the kernel knows of the file without asking its server, who may never answer.
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
  for (const auto& [id, domain] : domains_) {
    open += static_cast<size_t>(std::ranges::count(domain.members, member.session, &Member::session));
  }
  if (open >= kMostOfSession || !members_.allows(member.user)) return fail(ENOMEM);
  if (find_domain(member.session, member.name) != nullptr) return fail(EINVAL);
  const FileId id{::makedev(identity->stx_dev_major, identity->stx_dev_minor), identity->stx_ino,
                  device_index};
  const auto known = domains_.find(id);
  if (known != domains_.end()) {
    if (mode.exclusive) return fail(EINVAL);
    known->second.members.push_back(member);
    members_.take(member.user);
    return {};
  }
  if (!mode.create) return fail(EAGAIN);
  UniqueFd inode = inode_of(file);
  if (!inode) return fail(errno);
  domains_[id] = {ClientFile(std::move(inode), member.user, closer_), {member}};
  members_.take(member.user);
  return {};
}

template <class Leaves>
size_t DomainTable::remove(Leaves leaves) {
  size_t removed = 0;
  for (auto& [id, domain] : domains_) {
    removed += std::erase_if(domain.members, [&](const Member& member) {
      if (!leaves(member)) return false;
      members_.give_back(member.user);
      return true;
    });
  }
  std::erase_if(domains_, [](const auto& entry) { return entry.second.members.empty(); });
  return removed;
}

Result<void> DomainTable::close(uint64_t session, uint64_t name) {
  const size_t removed =
      remove([&](const Member& member) { return member.session == session && member.name == name; });
  if (removed == 0) return fail(EINVAL);
  return {};
}

void DomainTable::close_all(uint64_t session) {
  remove([&](const Member& member) { return member.session == session; });
}

void DomainTable::close_slot(uint64_t session, uint32_t slot) {
  remove([&](const Member& member) { return member.session == session && member.slot == slot; });
}

const DomainTable::Domain* DomainTable::find_domain(uint64_t session, uint64_t name) const {
  for (const auto& [id, domain] : domains_) {
    for (const Member& member : domain.members) {
      if (member.session == session && member.name == name) return &domain;
    }
  }
  return nullptr;
}

std::optional<DomainTable::Member> DomainTable::find(uint64_t session, uint64_t name, uint32_t slot) const {
  const Domain* domain = find_domain(session, name);
  if (domain == nullptr) return std::nullopt;
  const auto at = std::ranges::find(domain->members, slot, &Member::slot);
  if (at == domain->members.end()) return std::nullopt;
  return *at;
}

std::optional<uint32_t> DomainTable::slot_of(uint64_t session, uint64_t name) const {
  const Domain* domain = find_domain(session, name);
  if (domain == nullptr) return std::nullopt;
  const auto at = std::ranges::find_if(domain->members, [&](const Member& member) {
    return member.session == session && member.name == name;
  });
  return at->slot;
}

}  // namespace verbena::agent
