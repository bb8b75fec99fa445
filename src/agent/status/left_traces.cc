// SPDX-License-Identifier: Apache-2.0
#include "agent/status/left_traces.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/status/kept_traces.h"
#include "base/log.h"
#include "base/paths/root_only.h"
#include "base/paths/state_directory.h"
#include "base/paths/users.h"
#include "base/socket_option.h"
#include "base/text.h"
#include "control/protocol/messages.h"
#include "control/protocol/trace_ring.h"

namespace verbena::agent {
namespace {

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

std::string left_traces_path() {
  const std::string state = paths::state_directory_for(paths::own_user());
  const size_t slash = state.rfind('/');
  if (slash == std::string::npos) return {};
  return state.substr(0, slash + 1) + "traces-" + state.substr(slash + 1);
}

Result<void> leave_traces(const KeptTraces& kept, const std::string& path) {
  ::unlink(path.c_str());
  if (!kept.last_notable()) return {};
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
