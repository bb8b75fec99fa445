// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/slot_table.h"

#include <sys/random.h>

#include "base/log.h"
#include "base/sealed_file.h"
#include "control/protocol/status_page.h"

namespace verbena::agent {
namespace {

protocol::SlotSecret draw_secret() {
  protocol::SlotSecret secret;
  if (::getrandom(secret.data(), sizeof secret, GRND_NONBLOCK) != sizeof secret) return {};
  return secret;
}

// Makes a status page. Its size is sealed, so that a truncation by another process cannot kill one that maps
// it. No other user may open it again through /proc.
Result<UniqueFd> make_status_page() {
  auto page = make_private_file("verbena-status", sizeof(protocol::StatusPage));
  if (!page) return page;
  if (const auto secret = draw_secret(); protocol::is_set(secret)) {
    const auto at = static_cast<off_t>(offsetof(protocol::StatusPage, secret));
    if (::pwrite(page->get(), secret.data(), sizeof secret, at) != sizeof secret) return fail(errno);
  }
  if (const auto sealed = seal_size(page->get()); !sealed) return fail(sealed.error().code);
  return page;
}

// Sets the borrower's process from a pidfd. The former agent knew the process by a pid that may mean nothing
// in this pid namespace.
void take_process(Lessee& lessee, UniqueFd pidfd, ForeignCloser* closer) {
  if (!pidfd || !is_pidfd(pidfd.get())) return;
  lessee.pid = pid_of(pidfd.get());
  lessee.start_time = 0;
  lessee.process = share_process(std::move(pidfd), closer, lessee.uid);
}

}  // namespace

Result<LeasedSlot> SlotTable::lease(const Lessee& lessee, TimePoint now) {
  forgive_rested(now);
  const Wanted wanted{lessee.uid, now, quota_.allows(lessee.uid)};
  if (lessee.shares_port && !is_trusted(lessee.uid) && wire_.is_held_up()) return fail(EBUSY);
  if (!is_trusted(lessee.uid) && !unclosed_->allows(lessee.uid)) return fail(EDQUOT);
  auto page = make_status_page();
  if (!page) return fail(page.error().code);
  const auto index = choose(wanted);
  if (!index) return fail(index.error().code);
  // The socket exists even if this lease fails: the next lease gets it.
  Entry& entry = entries_[*index];
  const bool is_forwarded = !lessee.shares_port && wire_.socket(*index) >= 0;
  if (is_forwarded) {
    if (const auto begun = wire_.forward(*index, lessee.uid); !begun) {
      wire_.mute(*index);
      return fail(begun.error().code);
    }
  }
  count_for(entry, lessee.uid);
  entry.leased = true;
  entry.lease = ++leases_;
  entry.is_forwarded = is_forwarded;
  entry.lessee = lessee;
  entry.last_uid = lessee.uid;
  if (lessee.shares_port && wire_.socket(*index) >= 0) {
    entry.socket_uid = lessee.uid;
    if (!is_trusted(lessee.uid)) wire_.share(*index);
  }
  entry.page = std::move(*page);
  entry.descriptors = take_share(unclosed_, lessee.uid);
  enter_lessee(*index, entry);
  wire_.unmute(*index);
  return describe(*index, entry);
}

// A returned slot counts for its former user until another user may have it. Otherwise a user that takes and
// returns slots without end would keep all of them resting.
void SlotTable::forgive_rested(TimePoint now) {
  for (auto& [index, entry] : entries_) {
    const bool is_for_others = !entry.leased && entry.socket_uid == kNobody;
    const bool has_rested = now - entry.free_since >= kRestBetweenUsers;
    if (is_for_others && has_rested && may_be_leased(index, true)) count_for(entry, kNobody);
  }
}

void SlotTable::count_for(Entry& entry, uid_t user) {
  if (entry.counts_for == user) return;
  if (entry.counts_for != kNobody) quota_.give_back(entry.counts_for);
  if (user != kNobody) quota_.take(user);
  entry.counts_for = user;
}

Result<uint32_t> SlotTable::choose(const Wanted& wanted) {
  if (!wire_.has_sockets()) return choose_without_wire(wanted);
  if (const auto rested = longest_free(wanted, kRest)) return *rested;
  // The next socket's slot may have been leased while there was no wire.
  int error = wanted.may_grow || quota_.is_used_up() ? ENOSPC : EDQUOT;
  while (wanted.may_grow && wire_.size() < kEnd) {
    const auto added = wire_.add();
    if (!added) {
      error = added.error().code;
      log_warning("another socket for UDP port 4791 cannot be opened: errno {}", error);
      break;
    }
    const auto found = entries_.find(*added);
    if (found == entries_.end()) return *added;
    const bool is_another_user = found->second.last_uid != wanted.user && found->second.last_uid != kNobody;
    if (!found->second.leased && may_be_leased(*added, is_another_user)) return *added;
  }
  if (const auto any = longest_free(wanted, Duration::zero())) return *any;
  return fail(error);
}

Result<uint32_t> SlotTable::choose_without_wire(const Wanted& wanted) const {
  for (const Duration rest : {kRest, Duration::zero()}) {
    for (uint32_t index = kEnd - 1; index > 0; --index) {
      const auto found = entries_.find(index);
      if (found == entries_.end() ? wanted.may_grow : may_have(wanted, index, found->second, rest))
        return index;
    }
  }
  return fail(wanted.may_grow || quota_.is_used_up() ? ENOSPC : EDQUOT);
}

bool SlotTable::may_have(const Wanted& wanted, uint32_t index, const Entry& entry, Duration rest) const {
  const bool is_for_us = entry.socket_uid == wanted.user || entry.socket_uid == kNobody;
  const bool is_counted = wanted.may_grow || entry.counts_for == wanted.user;
  if (entry.leased || !is_for_us || !is_counted) return false;
  const bool was_ours = entry.last_uid == wanted.user || entry.last_uid == kNobody;
  const bool has_rested = wanted.now - entry.free_since >= (was_ours ? rest : kRestBetweenUsers);
  return has_rested && may_be_leased(index, !was_ours);
}

std::optional<uint32_t> SlotTable::longest_free(const Wanted& wanted, Duration rest) const {
  std::optional<uint32_t> best;
  for (const auto& [index, entry] : entries_) {
    if (index >= wire_.size() || !may_have(wanted, index, entry, rest)) continue;
    if (!best || entry.free_since < entries_.at(*best).free_since) best = index;
  }
  return best;
}

SlotTable::Entry* SlotTable::find_orphan(uint32_t index, uid_t user) {
  const auto found = entries_.find(index);
  if (found == entries_.end() || !found->second.leased) return nullptr;
  const Lessee& before = found->second.lessee;
  return before.session == 0 && before.uid == user ? &found->second : nullptr;
}

Result<void> SlotTable::keep(uint32_t index, const Lessee& lessee) {
  Entry* const entry = find_orphan(index, lessee.uid);
  if (entry == nullptr) return fail(ENOENT);
  // Another process of the user has no QPs in this slot. A pid is not reused while its process lives; Orphans
  // checks the processes that have no pidfd here. A process that the agent does not see must name the secret,
  // if the page has one.
  const Lessee& before = entry->lessee;
  if (before.pid != lessee.pid || (before.process && has_ended(before.process->get()))) return fail(ENOENT);
  if (before.pid <= 0 && !has_secret(*entry, {})) return fail(ENOENT);
  give_to(index, *entry, lessee);
  return {};
}

Result<void> SlotTable::claim(uint32_t index, const protocol::SlotSecret& secret, const Lessee& lessee) {
  Entry* const entry = find_orphan(index, lessee.uid);
  if (entry == nullptr || !protocol::is_set(secret) || !has_secret(*entry, secret)) return fail(ENOENT);
  give_to(index, *entry, lessee);
  return {};
}

// The user can make a reading of its page take long. So there are a few, of which an honest process needs
// two.
bool SlotTable::has_secret(Entry& orphan, const protocol::SlotSecret& secret) {
  if (orphan.readings_left == 0) return false;
  --orphan.readings_left;
  return protocol::secret_in(orphan.page.get()) == secret;
}

void SlotTable::give_to(uint32_t index, Entry& entry, const Lessee& lessee) {
  strike_lessee(index, entry);
  entry.lessee = lessee;
  enter_lessee(index, entry);
}

Result<void> SlotTable::take_back(uint32_t index, uint64_t session, TimePoint now) {
  const auto found = entries_.find(index);
  const bool is_theirs =
      found != entries_.end() && found->second.leased && found->second.lessee.session == session;
  if (!is_theirs) return fail(ENOENT);
  free(index, found->second, now);
  return {};
}

void SlotTable::enter_lessee(uint32_t index, const Entry& entry) {
  by_lessee_.emplace(entry.lessee.session, index);
  by_user_.emplace(entry.lessee.uid, index);
  if (entry.lessee.uid != own_) ++leased_to_other_users_;
}

void SlotTable::strike_lessee(uint32_t index, const Entry& entry) {
  by_lessee_.erase({entry.lessee.session, index});
  by_user_.erase({entry.lessee.uid, index});
  if (entry.lessee.uid != own_) --leased_to_other_users_;
}

void SlotTable::free(uint32_t index, Entry& entry, TimePoint now) {
  strike_lessee(index, entry);
  entry.leased = false;
  entry.is_forwarded = false;
  const uid_t user = std::exchange(entry.lessee, {}).uid;
  for (UniqueFd* const page : {&entry.page, &entry.read_only_page}) {
    ForeignCloser* const closer = wire_.closer();
    if (closer != nullptr && *page) closer->close(user, std::move(*page), entry.descriptors);
    page->reset();
  }
  entry.descriptors = nullptr;
  entry.free_since = now;
  wire_.hang_up(index);
  wire_.mute(index);
}

Result<void> SlotTable::adopt(TakeoverState::Contents& contents, TimePoint now) {
  const auto own = [&](int fd) {
    const auto found =
        std::ranges::find_if(contents.fds, [&](const UniqueFd& owned) { return owned.get() == fd; });
    return fd >= 0 && found != contents.fds.end() ? std::move(*found) : UniqueFd();
  };
  std::vector<UniqueFd> sockets;
  std::set<uint32_t> shared;
  for (const SlotRecord& slot : contents.slots) {
    if (slot.socket < 0) continue;
    if (slot.index != sockets.size()) return fail(EINVAL);  // one is missing: the order is lost
    if (slot.socket_uid != kNobody && !is_trusted(slot.socket_uid)) shared.insert(slot.index);
    sockets.push_back(own(slot.socket));
  }
  if (!sockets.empty()) {
    if (const auto adopted = wire_.adopt(std::move(sockets), std::move(shared)); !adopted) return adopted;
  }
  for (const SlotRecord& slot : contents.slots) {
    if (slot.index == 0 || slot.index >= kEnd || entries_.contains(slot.index)) continue;
    Entry& entry = entries_[slot.index];
    entry.last_uid = slot.uid;
    entry.socket_uid = slot.socket_uid;
    entry.free_since = now;
    entry.page = own(slot.page);
    entry.leased = slot.leased && entry.page;
    count_for(entry, slot.uid);
    if (!entry.leased) continue;
    entry.lease = ++leases_;
    entry.lessee = {0, slot.uid, slot.pid, slot.start_time, slot.program};
    entry.descriptors = take_share(unclosed_, slot.uid);
    if (slot.process >= 0) take_process(entry.lessee, own(slot.process), wire_.closer());
    enter_lessee(slot.index, entry);
    entry.is_forwarded = slot.forwarder_end >= 0;
    if (entry.is_forwarded) pass_on(slot.index, slot.uid, own(slot.forwarder_end));
  }
  return {};
}

// Goes on forwarding where the former agent stopped.
void SlotTable::pass_on(uint32_t index, uid_t user, UniqueFd forwarder_end) {
  const auto begun = wire_.go_on_forwarding(index, user, std::move(forwarder_end));
  if (!begun) log_warning("slot {} gets nothing from the wire any more: errno {}", index, begun.error().code);
}

Result<int> SlotTable::read_only_page(uint32_t index) {
  const auto found = entries_.find(index);
  if (found == entries_.end() || !found->second.leased) return fail(ENOENT);
  UniqueFd& page = found->second.read_only_page;
  if (!page) page = reopen_read_only(found->second.page.get());
  if (!page) return fail(errno);
  return page.get();
}

std::optional<LeasedSlot> SlotTable::find_leased(uint32_t index) const {
  for (auto entry = entries_.lower_bound(index); entry != entries_.end(); ++entry) {
    if (entry->second.leased) return describe(entry->first, entry->second);
  }
  return std::nullopt;
}

std::optional<LeasedSlot> SlotTable::find_leased_to(uid_t user, uint32_t index) const {
  const auto found = by_user_.lower_bound({user, index});
  if (found == by_user_.end() || found->first != user) return std::nullopt;
  return describe(found->second, entries_.at(found->second));
}

std::optional<LeasedSlot> SlotTable::first_leased_to(uint64_t session) const {
  const auto found = by_lessee_.lower_bound({session, 0});
  if (found == by_lessee_.end() || found->first != session) return std::nullopt;
  return describe(found->second, entries_.at(found->second));
}

std::vector<LeasedSlot> SlotTable::leased() const {
  std::vector<LeasedSlot> leased;
  for (const auto& [index, entry] : entries_) {
    if (entry.leased) leased.push_back(describe(index, entry));
  }
  return leased;
}

std::vector<LeasedSlot> SlotTable::leased_to(uint64_t session) const {
  std::vector<LeasedSlot> leased;
  for_each_leased_to(session, [&](uint32_t index) { leased.push_back(describe(index, entries_.at(index))); });
  return leased;
}

LeasedSlot SlotTable::describe(uint32_t index, const Entry& entry) const {
  return {index,        entry.lease,      wire_.socket(index), entry.is_forwarded, entry.page.get(),
          entry.lessee, entry.descriptors};
}

SlotRecord SlotTable::record(uint32_t index) const {
  SlotRecord record;
  record.index = index;
  record.socket = wire_.socket(index);
  const auto found = entries_.find(index);
  if (found == entries_.end()) return record;
  const Entry& entry = found->second;
  record.leased = entry.leased;
  record.uid = entry.last_uid;
  record.socket_uid = entry.socket_uid;
  record.pid = entry.lessee.pid;
  record.start_time = entry.lessee.start_time;
  record.program = entry.lessee.program;
  record.page = entry.page.get();
  if (entry.lessee.process) record.process = entry.lessee.process->get();
  record.forwarder_end = wire_.forwarder_end(index);
  return record;
}

std::vector<SlotRecord> SlotTable::records() const {
  std::vector<SlotRecord> records;
  for (uint32_t index = 0; index < wire_.size(); ++index) records.push_back(record(index));
  for (auto entry = entries_.lower_bound(wire_.size()); entry != entries_.end(); ++entry) {
    records.push_back(record(entry->first));
  }
  return records;
}

}  // namespace verbena::agent
