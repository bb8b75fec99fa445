// SPDX-License-Identifier: Apache-2.0
#include "agent/slot_table.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "protocol/status_page.h"

namespace verbena::agent {
namespace {

// Of fixed size, so that a process that maps it cannot be hurt by another's truncation; no other user may
// open it again through /proc.
Result<UniqueFd> make_status_page() {
  UniqueFd page(::memfd_create("verbena-status", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!page) return fail(errno);
  if (::ftruncate(page.get(), sizeof(protocol::StatusPage)) != 0) return fail(errno);
  ::fchmod(page.get(), 0600);
  if (::fcntl(page.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) != 0) return fail(errno);
  return page;
}

}  // namespace

Result<LentSlot> SlotTable::lend(const Borrower& borrower, TimePoint now) {
  auto page = make_status_page();
  if (!page) return fail(page.error().code);
  const auto index = choose(borrower.uid, now);
  if (!index) return fail(ENOSPC);
  Entry& entry = entries_[*index];
  entry.lent = true;
  entry.borrower = borrower;
  entry.last_uid = borrower.uid;
  entry.page = std::move(*page);
  wire_.unmute(*index);
  return describe(*index, entry);
}

std::optional<uint32_t> SlotTable::choose(uid_t uid, TimePoint now) {
  if (!wire_.has_sockets()) {
    for (uint32_t index = kEnd - 1; index > 0; --index) {
      const auto found = entries_.find(index);
      const bool rested = found != entries_.end() && now - found->second.free_since >= kRest;
      if (found == entries_.end() || (!found->second.lent && rested)) return index;
    }
    return std::nullopt;
  }
  if (const auto rested = longest_free(uid, now - kRest)) return rested;
  // The next socket's slot may be one that was lent while there was no wire.
  while (wire_.size() < kEnd) {
    const auto added = wire_.add();
    if (!added) {
      log_warning("another socket for UDP port 4791 cannot be opened: errno {}", added.error().code);
      break;
    }
    const auto found = entries_.find(*added);
    if (found == entries_.end() || !found->second.lent) return *added;
  }
  return longest_free(uid, now);
}

std::optional<uint32_t> SlotTable::longest_free(uid_t uid, TimePoint free_before) const {
  std::optional<uint32_t> best;
  for (const auto& [index, entry] : entries_) {
    const bool fits =
        !entry.lent && index < wire_.size() && (entry.last_uid == uid || entry.last_uid == kNobody);
    if (!fits || entry.free_since > free_before) continue;
    if (!best || entry.free_since < entries_.at(*best).free_since) best = index;
  }
  return best;
}

Result<void> SlotTable::keep(uint32_t index, const Borrower& borrower) {
  const auto found = entries_.find(index);
  if (found == entries_.end() || !found->second.lent) return fail(ENOENT);
  Entry& entry = found->second;
  if (entry.borrower.session != 0 || entry.borrower.uid != borrower.uid) return fail(ENOENT);
  entry.borrower = borrower;
  return {};
}

Result<void> SlotTable::take_back(uint32_t index, uint64_t session, TimePoint now) {
  const auto found = entries_.find(index);
  const bool is_theirs =
      found != entries_.end() && found->second.lent && found->second.borrower.session == session;
  if (!is_theirs) return fail(ENOENT);
  free(index, found->second, now);
  return {};
}

void SlotTable::take_back_all(uint64_t session, TimePoint now) {
  for (auto& [index, entry] : entries_) {
    if (entry.lent && entry.borrower.session == session) free(index, entry, now);
  }
}

void SlotTable::free(uint32_t index, Entry& entry, TimePoint now) {
  entry.lent = false;
  entry.borrower = {};
  entry.page.reset();
  entry.free_since = now;
  wire_.mute(index);
}

Result<void> SlotTable::adopt(Vault::Contents& contents, TimePoint now) {
  const auto own = [&](int fd) {
    const auto found = std::find_if(contents.fds.begin(), contents.fds.end(),
                                    [&](const UniqueFd& owned) { return owned.get() == fd; });
    return fd >= 0 && found != contents.fds.end() ? std::move(*found) : UniqueFd();
  };
  std::vector<UniqueFd> sockets;
  for (const SlotRecord& slot : contents.slots) {
    if (slot.socket < 0) continue;
    if (slot.index != sockets.size()) return fail(EINVAL);  // one is missing: the order is lost
    sockets.push_back(own(slot.socket));
  }
  if (!sockets.empty()) {
    if (const auto adopted = wire_.adopt(std::move(sockets)); !adopted) return adopted;
  }
  for (const SlotRecord& slot : contents.slots) {
    if (slot.index == 0 || slot.index >= kEnd || entries_.contains(slot.index)) continue;
    Entry& entry = entries_[slot.index];
    entry.last_uid = slot.uid;
    entry.free_since = now;
    entry.page = own(slot.page);
    entry.lent = slot.lent && entry.page;
    if (entry.lent) entry.borrower = {0, slot.uid, slot.pid, slot.start_time, slot.program};
  }
  return {};
}

std::optional<LentSlot> SlotTable::find_lent(uint32_t index) const {
  for (auto entry = entries_.lower_bound(index); entry != entries_.end(); ++entry) {
    if (entry->second.lent) return describe(entry->first, entry->second);
  }
  return std::nullopt;
}

std::vector<LentSlot> SlotTable::lent() const {
  std::vector<LentSlot> lent;
  for (const auto& [index, entry] : entries_) {
    if (entry.lent) lent.push_back(describe(index, entry));
  }
  return lent;
}

LentSlot SlotTable::describe(uint32_t index, const Entry& entry) const {
  return {index, wire_.socket(index), entry.page.get(), entry.borrower};
}

SlotRecord SlotTable::record(uint32_t index) const {
  SlotRecord record;
  record.index = index;
  record.uid = kNobody;
  record.socket = wire_.socket(index);
  const auto found = entries_.find(index);
  if (found == entries_.end()) return record;
  const Entry& entry = found->second;
  record.lent = entry.lent;
  record.uid = entry.last_uid;
  record.pid = entry.borrower.pid;
  record.start_time = entry.borrower.start_time;
  record.program = entry.borrower.program;
  record.page = entry.page.get();
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
