// SPDX-License-Identifier: Apache-2.0
#include "agent/kept_traces.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sealed_file.h"
#include "protocol/status_page.h"
#include "trace/reader.h"

namespace verbena::agent {
namespace {

using protocol::TraceRing;
using protocol::TraceRings;

// A process of a former agent that never came back has no session.
constexpr uint64_t kWithoutSession = uint64_t{1} << 63;

uint64_t process_of(const Borrower& borrower) {
  if (borrower.session != 0) return borrower.session;
  return kWithoutSession | static_cast<uint32_t>(borrower.pid);
}

// From a process's page into our file, at the same place of the rings.
bool copy_range(int page, int file, size_t begin, size_t bytes) {
  std::array<std::byte, 16 * 1024> some;
  for (size_t at = begin; at < begin + bytes;) {
    const size_t part = std::min(some.size(), begin + bytes - at);
    const auto from = static_cast<off_t>(offsetof(protocol::StatusPage, traces) + at);
    const auto got = ::pread(page, some.data(), part, from);
    if (got <= 0) return false;
    if (::pwrite(file, some.data(), static_cast<size_t>(got), static_cast<off_t>(at)) != got) return false;
    at += static_cast<size_t>(got);
  }
  return true;
}

// How much of a ring was ever used, its head included; 0: nothing.
size_t used_bytes(int page, size_t ring) {
  uint64_t written = 0;
  const size_t at = offsetof(protocol::StatusPage, traces) + ring + offsetof(TraceRing, written);
  if (::pread(page, &written, sizeof written, static_cast<off_t>(at)) != sizeof written || written == 0)
    return 0;
  const size_t entries = std::min<uint64_t>(written, protocol::kTraceEntries);
  return offsetof(TraceRing, entries) + entries * sizeof(protocol::TraceEntry);
}

}  // namespace

// Only what was used: the rest of the file is a hole. ENODATA: nothing was.
Result<KeptTraces::Copy> KeptTraces::copy(int page) {
  Copy copy;
  copy.file.reset(::memfd_create("verbena-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!copy.file) return fail(errno);
  if (::ftruncate(copy.file.get(), sizeof(TraceRings)) != 0) return fail(errno);
  for (const size_t ring : {offsetof(TraceRings, events), offsetof(TraceRings, details)}) {
    const size_t used = used_bytes(page, ring);
    if (!copy_range(page, copy.file.get(), ring, used)) return fail(EIO);
    copy.bytes += used;
  }
  if (copy.bytes == 0) return fail(ENODATA);
  if (!copy_range(page, copy.file.get(), 0, offsetof(TraceRings, events))) return fail(EIO);
  if (const auto sealed = seal_size(copy.file.get(), F_SEAL_WRITE); !sealed) return fail(sealed.error().code);
  return copy;
}

void KeptTraces::keep(const LentSlot& slot, bool in_order, TimePoint now) {
  forget_quiet(now);
  auto copied = copy(slot.page);
  if (!copied) return;
  trace::Reader reader(copied->file.get(), 0);
  const bool has_trouble = std::ranges::any_of(reader.read_rare(), trace::is_trouble);
  kept_.push_back({.number = next_++,
                   .process = process_of(slot.borrower),
                   .slot = slot.index,
                   .pid = slot.borrower.pid,
                   .uid = slot.borrower.uid,
                   .program = slot.borrower.program,
                   .ended = now,
                   .in_order = in_order,
                   .is_notable = !in_order || has_trouble,
                   .bytes = copied->bytes,
                   .file = std::move(copied->file)});
  while (processes() > kMostProcesses || bytes() > kMostBytes) forget_one();
}

const KeptTraces::Kept* KeptTraces::find(uint64_t from, TimePoint now) {
  forget_quiet(now);
  const auto found = std::ranges::find_if(kept_, [&](const Kept& kept) { return kept.number >= from; });
  return found != kept_.end() ? &*found : nullptr;
}

std::optional<TimePoint> KeptTraces::last_notable() const {
  std::optional<TimePoint> last;
  for (const Kept& kept : kept_) {
    if (kept.is_notable) last = kept.ended;
  }
  return last;
}

size_t KeptTraces::processes() const {
  std::set<uint64_t> all;
  for (const Kept& kept : kept_) all.insert(kept.process);
  return all.size();
}

size_t KeptTraces::bytes() const {
  size_t sum = 0;
  for (const Kept& kept : kept_) sum += kept.bytes;
  return sum;
}

void KeptTraces::forget_quiet(TimePoint now) {
  kept_.remove_if([&](const Kept& kept) { return !kept.is_notable && now - kept.ended >= kQuietTime; });
}

// Of a process that has most of everything by itself, slot by slot.
void KeptTraces::forget_one() {
  std::map<uid_t, size_t> bytes_of;
  for (const Kept& kept : kept_) bytes_of[kept.uid] += kept.bytes;
  const uid_t most =
      std::ranges::max_element(bytes_of, {}, [](const auto& each) { return each.second; })->first;
  auto victim = std::ranges::find_if(kept_, [&](const Kept& k) { return k.uid == most && !k.is_notable; });
  if (victim == kept_.end()) victim = std::ranges::find(kept_, most, &Kept::uid);
  kept_.erase(victim);
}

}  // namespace verbena::agent
