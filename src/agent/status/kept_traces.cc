// SPDX-License-Identifier: Apache-2.0
#include "agent/status/kept_traces.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/cm/connection_trace.h"
#include "agent/own_process.h"
#include "agent/sessions/session_reply.h"
#include "base/paths/root_only.h"
#include "base/paths/state_directory.h"
#include "base/paths/users.h"
#include "base/sealed_file.h"
#include "base/socket_option.h"
#include "base/text.h"
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

constexpr uint64_t kMagic = 0x7665726265'6c7401;  // "verbe", "lt", layout 1
constexpr size_t kBootIdBytes = 40;
constexpr size_t kHeadBytes = 4096;  // a block, so that holes stay holes
constexpr size_t kStride = kHeadBytes + (sizeof(protocol::TraceRings) + 4095) / 4096 * 4096;
constexpr size_t kMaxRecords = 64;

// Header of a slot's record. The rings follow kHeadBytes after its start.
struct Head {
  uint64_t magic;
  char boot[kBootIdBytes];     // boot ID: times are comparable only within one boot
  uint64_t network_namespace;  // unique, unlike the inode number in the file's name
  uint64_t process;
  int64_t ended_at;  // CLOCK_MONOTONIC, nanoseconds
  int32_t pid;
  uint32_t uid;
  uint32_t slot;
  uint32_t in_order;
  char program[protocol::kProgramBytes];
};
static_assert(sizeof(Head) <= kHeadBytes);

void store_boot_id(char (&text)[kBootIdBytes]) {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file) return;
  [[maybe_unused]] const auto got = ::read(file.get(), text, kBootIdBytes - 1);
}

// Returns a header with the fields that all records of one file share.
Head common_head() {
  Head head{};
  head.magic = kMagic;
  store_boot_id(head.boot);
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket) head.network_namespace = network_namespace_of(socket.get());
  return head;
}

bool is_of_here(const Head& head, const Head& common) {
  return head.magic == common.magic && head.network_namespace == common.network_namespace &&
         std::memcmp(head.boot, common.boot, sizeof head.boot) == 0;
}

Head head_of(const KeptTraces::Kept& kept, const Head& common) {
  Head head = common;
  head.process = kept.process;
  head.ended_at = kept.ended.time_since_epoch().count();
  head.pid = kept.pid;
  head.uid = kept.uid;
  head.slot = kept.slot;
  head.in_order = kept.in_order ? 1 : 0;
  store_text(head.program, kept.program);
  return head;
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
  auto file = make_private_file("verbena-trace", sizeof(TraceRings));
  if (!file) return fail(file.error().code);
  copy.file = std::move(*file);
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
  const auto copy = trace.copy();
  if (!copy) return log_debug("a trace of process {} is lost: errno {}", process.pid, copy.error().code);
  keep_copy({.process = process.process != 0 ? process.process : new_process(),
             .slot = place_of(trace),
             .pid = process.pid,
             .uid = process.uid,
             .program = process.program,
             .ended = now,
             .in_order = trace.ended_in_order},
            copy->get(), 0);
}

void KeptTraces::keep_copy(Kept kept, int file, size_t offset) {
  const auto added = std::make_shared<Kept>(std::move(kept));
  const auto copy = [added, offset](int from) {
    auto copied = copy_rings(from, offset);
    if (!copied) return;
    trace::Reader reader(copied->file.get(), 0);
    const bool has_trouble = std::ranges::any_of(reader.read_rare(), trace::is_trouble);
    added->is_notable = !added->in_order || has_trouble;
    added->bytes = copied->bytes;
    added->file = std::move(copied->file);
  };
  if (!copies_->allows(added->uid)) return log_debug("a trace of process {} is lost: too many", added->pid);
  const auto then = [this, added, share = take_share(copies_, added->uid)] {
    forget_quiet(added->ended);
    if (added->file) add(std::move(*added));
  };
  const auto begun = closer_.work_with(added->uid, file, copy, then);
  if (!begun) log_debug("a trace of process {} is lost: errno {}", added->pid, begun.error().code);
}

void KeptTraces::add(Kept kept) {
  kept.number = next_++;
  kept_.push_back(std::move(kept));
  for (;;) {
    const auto all = amounts();
    const Measure measure = exceeded(all);
    if (measure == nullptr) return;
    forget_one(all, measure);
  }
}

const KeptTraces::Kept* KeptTraces::find(uint64_t from, TimePoint now) {
  forget_quiet(now);
  const auto found = std::ranges::find_if(kept_, [&](const Kept& kept) { return kept.number >= from; });
  return found != kept_.end() ? &*found : nullptr;
}

KeptTraces::Amount KeptTraces::limits() {
  return {.processes = kMaxProcesses, .bytes = kMaxBytes, .traces = room_with(descriptor_limit())};
}

std::map<uid_t, KeptTraces::Amount> KeptTraces::amounts() const {
  std::map<uid_t, Amount> amounts;
  std::set<uint64_t> processes;
  for (const Kept& kept : kept_) {
    Amount& amount = amounts[kept.uid];
    amount.bytes += kept.bytes;
    ++amount.traces;
    if (processes.insert(kept.process).second) ++amount.processes;
  }
  return amounts;
}

KeptTraces::Measure KeptTraces::exceeded(const std::map<uid_t, Amount>& amounts) {
  const Amount most = limits();
  for (const Measure measure : {&Amount::processes, &Amount::bytes, &Amount::traces}) {
    size_t sum = 0;
    for (const auto& [user, amount] : amounts) sum += amount.*measure;
    if (sum > most.*measure) return measure;
  }
  return nullptr;
}

void KeptTraces::forget_quiet(TimePoint now) {
  for (auto next = kept_.begin(); next != kept_.end();) {
    const auto each = next++;
    if (!each->is_notable && now - each->ended >= kQuietTime) erase(each);
  }
}

// Readers have copies of the descriptor.
void KeptTraces::erase(std::list<Kept>::iterator kept) {
  closer_.close(kept->uid, std::move(kept->file));
  kept_.erase(kept);
}

// The user that has most of what there is too much of loses a trace. A quarter is reserved for root and for
// the agent's user. If several users have the same, the one with the oldest trace loses. Drops one trace, not
// a whole process: a process that uses most of the space loses its slots one by one.
void KeptTraces::forget_one(const std::map<uid_t, Amount>& amounts, Measure measure) {
  const size_t reserve = limits().*measure / 4;
  const auto claim = [&](uid_t user) {
    const size_t has = amounts.at(user).*measure;
    return sees_all(user) && has <= reserve ? 0 : has;
  };
  const uid_t most =
      std::ranges::max_element(kept_, {}, [&](const Kept& kept) { return claim(kept.uid); })->uid;
  auto victim = std::ranges::find_if(kept_, [&](const Kept& k) { return k.uid == most && !k.is_notable; });
  if (victim == kept_.end()) victim = std::ranges::find(kept_, most, &Kept::uid);
  erase(victim);
}

std::string left_traces_path() {
  const std::string state = paths::state_directory_for(paths::own_user());
  const size_t slash = state.rfind('/');
  if (slash == std::string::npos) return {};
  return state.substr(0, slash + 1) + "traces-" + state.substr(slash + 1);
}

Result<void> leave_traces(const KeptTraces& kept, const std::string& path) {
  ::unlink(path.c_str());
  if (!kept.has_notable()) return {};
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail(errno);
  const Head common = common_head();
  size_t records = 0;
  int error = 0;
  kept.for_each_notable([&](const KeptTraces::Kept& each) {
    if (records == kMaxRecords || error != 0) return;
    const size_t at = records++ * kStride;
    const Head head = head_of(each, common);
    const auto copied = copy_rings(each.file.get(), 0, file.get(), at + kHeadBytes);
    const auto put = ::pwrite(file.get(), &head, sizeof head, static_cast<off_t>(at));
    if (!copied || put != sizeof head) error = copied ? EIO : copied.error().code;
  });
  if (error == 0) return {};
  ::unlink(path.c_str());
  return fail(error);
}

void take_left_traces(KeptTraces& kept, const std::string& path, TimePoint now) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return;
  ::unlink(path.c_str());
  struct stat status {};
  const bool is_ours = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                       paths::only_written_by(::geteuid(), status);
  if (!is_ours) return;
  const Head common = common_head();
  std::map<uint64_t, uint64_t> processes;
  for (size_t record = 0; record < kMaxRecords; ++record) {
    const size_t at = record * kStride;
    Head head;
    if (::pread(file.get(), &head, sizeof head, static_cast<off_t>(at)) != sizeof head) return;
    const TimePoint ended{Duration(head.ended_at)};
    if (!is_of_here(head, common) || ended > now || now - ended >= kLongestLeft) continue;
    auto copy = copy_rings(file.get(), at + kHeadBytes);
    if (!copy) continue;
    const auto [process, is_new] = processes.try_emplace(head.process, 0);
    if (is_new) process->second = kept.new_process();
    kept.add({.process = process->second,
              .slot = head.slot,
              .pid = head.pid,
              .uid = head.uid,
              .program = load_text(head.program),
              .ended = ended,
              .in_order = head.in_order != 0,
              .is_notable = true,
              .bytes = copy->bytes,
              .file = std::move(copy->file)});
  }
}

}  // namespace verbena::agent
