// SPDX-License-Identifier: Apache-2.0
#include "agent/status/kept_traces.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/cm/connection_trace.h"
#include "agent/descriptor_limit.h"
#include "base/sealed_file.h"
#include "control/protocol/status_page.h"
#include "control/protocol/trace_ring.h"
#include "observe/trace/reader.h"

namespace verbena::agent {

namespace {

using protocol::TraceRing;
using protocol::TraceRings;

bool copy_range(int from, size_t offset, int to, size_t to_offset, size_t bytes) {
  std::array<std::byte, 16 * 1024> some;
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(some.size(), bytes - done);
    const auto got = ::pread(from, some.data(), part, static_cast<off_t>(offset + done));
    if (got <= 0) return false;
    const auto at = static_cast<off_t>(to_offset + done);
    if (::pwrite(to, some.data(), static_cast<size_t>(got), at) != got) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

// Returns the size of the used part of a ring with its head, or 0 if it is unused.
size_t used_bytes(int file, size_t ring) {
  uint64_t written = 0;
  const auto at = static_cast<off_t>(ring + offsetof(TraceRing, written));
  if (::pread(file, &written, sizeof written, at) != sizeof written || written == 0) return 0;
  const size_t entries = std::min<uint64_t>(written, protocol::kTraceEntries);
  return offsetof(TraceRing, entries) + entries * sizeof(protocol::TraceEntry);
}

}  // namespace

Result<size_t> copy_rings(int from, size_t offset, int to, size_t to_offset) {
  size_t copied = 0;
  for (const size_t ring : {offsetof(TraceRings, events), offsetof(TraceRings, details)}) {
    const size_t used = used_bytes(from, offset + ring);
    if (!copy_range(from, offset + ring, to, to_offset + ring, used)) return fail(EIO);
    copied += used;
  }
  if (copied == 0) return fail(ENODATA);
  if (!copy_range(from, offset, to, to_offset, offsetof(TraceRings, events))) return fail(EIO);
  return copied;
}

Result<TraceCopy> copy_rings(int from, size_t offset) {
  TraceCopy copy;
  copy.file.reset(::memfd_create("verbena-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!copy.file) return fail(errno);
  if (::ftruncate(copy.file.get(), sizeof(TraceRings)) != 0) return fail(errno);
  const auto copied = copy_rings(from, offset, copy.file.get(), 0);
  if (!copied) return fail(copied.error().code);
  copy.bytes = *copied;
  if (const auto sealed = seal_size(copy.file.get(), F_SEAL_WRITE); !sealed) return fail(sealed.error().code);
  return copy;
}

void KeptTraces::keep(const LeasedSlot& slot, bool in_order, TimePoint now) {
  // A process of a former agent that never reconnected may have neither pid nor session.
  const uint64_t process = process_number(slot.lessee);
  keep_copy({.process = process != 0 ? process : new_process(),
             .slot = slot.index,
             .pid = slot.lessee.pid,
             .uid = slot.lessee.uid,
             .program = slot.lessee.program,
             .ended = now,
             .in_order = in_order},
            slot.page, offsetof(protocol::StatusPage, traces));
}

void KeptTraces::keep(const ConnectionTrace& trace, TimePoint now) {
  const TracedProcess& process = trace.process();
  keep_copy({.process = process.process != 0 ? process.process : new_process(),
             .slot = place_of(trace),
             .pid = process.pid,
             .uid = process.uid,
             .program = process.program,
             .ended = now,
             .in_order = trace.ended_in_order},
            trace.file(), 0);
}

void KeptTraces::keep_copy(Kept kept, int file, size_t offset) {
  forget_quiet(kept.ended);
  auto copied = copy_rings(file, offset);
  if (!copied) return;
  trace::Reader reader(copied->file.get(), 0);
  const bool has_trouble = std::ranges::any_of(reader.read_rare(), trace::is_trouble);
  kept.is_notable = !kept.in_order || has_trouble;
  kept.bytes = copied->bytes;
  kept.file = std::move(copied->file);
  add(std::move(kept));
}

void KeptTraces::add(Kept kept) {
  kept.number = next_++;
  kept_.push_back(std::move(kept));
  while (processes() > kMaxProcesses || bytes() > kMaxBytes || kept_.size() > room_with(descriptor_limit()))
    forget_one();
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

// Drops one trace, not a whole process: a process that uses most of the space loses its slots one by one.
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
