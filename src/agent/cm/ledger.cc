// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/ledger.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "base/log.h"
#include "base/sealed_file.h"

namespace verbena::agent {
namespace {

// Takes the place of entry 0.
struct LedgerHeader {
  uint32_t magic = 0x7267646c;  // "ldgr"
  uint32_t version = 1;
  uint32_t entry_bytes = sizeof(LedgerEntry);
  uint8_t reserved[116] = {};
};
static_assert(sizeof(LedgerHeader) == sizeof(LedgerEntry));

off_t place_of(Ledger::Number number) {
  return static_cast<off_t>(number) * static_cast<off_t>(sizeof(LedgerEntry));
}

}  // namespace

Ledger::Ledger(std::function<void()> on_others)
    : file_(make_private_file("verbena-ledger", 0).value_or(UniqueFd())),
      on_others_(std::move(on_others)),
      own_(::geteuid()),
      quota_(Quota::Size::of(kMax), own_) {
  const LedgerHeader header;
  if (file_ && ::pwrite(file_.get(), &header, sizeof header, 0) != sizeof header) file_.reset();
  if (!file_) log_warning("ports would not survive the agent's end: no ledger can be made: errno {}", errno);
}

// Writes by a system call: if memory is short, that fails instead of killing the agent.
bool Ledger::write(Number number, const LedgerEntry& entry) {
  return ::pwrite(file_.get(), &entry, sizeof entry, place_of(number)) == sizeof entry;
}

Ledger::Number Ledger::add(const LedgerEntry& entry) {
  if (!file_ || frozen_ || !quota_.allows(entry.user)) return 0;
  const bool is_new = free_.empty();
  const Number number = is_new ? static_cast<Number>(users_.size()) : free_.back();
  if (!write(number, entry)) return 0;
  if (is_new) {
    users_.push_back(entry.user);
  } else {
    free_.pop_back();
    users_[number] = entry.user;
  }
  quota_.take(entry.user);
  count(entry.user, 1);
  return number;
}

void Ledger::change(Number number, const LedgerEntry& entry) {
  if (number != 0 && !frozen_) [[maybe_unused]]
    const bool written = write(number, entry);
}

void Ledger::remove(Number number) {
  if (number == 0 || frozen_) return;
  // The page exists already, so this does not fail.
  [[maybe_unused]] const bool written = write(number, {});
  quota_.give_back(users_[number]);
  free_.push_back(number);
  count(users_[number], -1);
}

void Ledger::count(uint32_t user, int by) {
  if (user == own_) return;
  const bool before = others_ > 0;
  others_ += static_cast<size_t>(by);
  if (before != (others_ > 0)) on_others_();
}

std::vector<LedgerEntry> Ledger::read(int file) {
  std::vector<LedgerEntry> entries;
  LedgerHeader header{};
  const LedgerHeader expected;
  if (::pread(file, &header, sizeof header, 0) != sizeof header) return entries;
  if (std::memcmp(&header, &expected, sizeof header) != 0) return entries;
  constexpr size_t kAtOnce = 512;
  std::vector<LedgerEntry> read(kAtOnce);
  for (Number number = 1; number <= kMax; number += kAtOnce) {
    const ssize_t bytes = ::pread(file, read.data(), kAtOnce * sizeof(LedgerEntry), place_of(number));
    if (bytes <= 0) break;
    const auto end = read.begin() + bytes / static_cast<ssize_t>(sizeof(LedgerEntry));
    std::copy_if(read.begin(), end, std::back_inserter(entries), [](const LedgerEntry& entry) {
      return entry.kind == LedgerEntry::kPort || entry.kind == LedgerEntry::kConnection;
    });
  }
  return entries;
}

}  // namespace verbena::agent
