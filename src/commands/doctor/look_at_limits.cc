// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/format.h"
#include "base/paths/state_path.h"
#include "commands/doctor/checks.h"

namespace verbena::commands::doctor {
namespace {

constexpr const char* kLimits = "limits";

// A device needs about a dozen descriptors, a shard some more, a peer on this host up to two.
constexpr rlim_t kFewDescriptors = 64;
constexpr rlim_t kSomeDescriptors = 256;
// Rings, export tables and mapped memory of peers take address space. A status page alone is only reserved.
constexpr rlim_t kSmallAddressSpace = rlim_t{1} << 30;
constexpr rlim_t kFewFileBytes = rlim_t{1} << 20;
constexpr rlim_t kFewThreads = 64;
// Linux's default. Smaller buffers lose packets before a program can read them.
constexpr long kUsualSocketBytes = 212'992;
constexpr unsigned long kLittleSharedMemory = 16ul << 20;
// A link has some dozens of files of one page each.
constexpr unsigned long kLittleStateRoom = 1ul << 20;
constexpr unsigned long kFewFiles = 256;

struct Limit {
  rlim_t soft = RLIM_INFINITY;
  rlim_t hard = RLIM_INFINITY;
};

Limit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  return {limit.rlim_cur, limit.rlim_max};
}

void look_at_descriptors(Findings& findings) {
  const Limit limit = limit_of(RLIMIT_NOFILE);
  const std::string what = verbena::format("a program may have {} descriptors open (ulimit -n)", limit.soft);
  const std::string todo = limit.hard < kSomeDescriptors
                               ? verbena::format(
                                     "the hard limit is {}: raise LimitNOFILE (systemd), or nofile in "
                                     "/etc/security/limits.conf; for a container, --ulimit nofile=65536",
                                     limit.hard)
                               : verbena::format("raise it where the program is started: ulimit -n {}",
                                                 std::min<rlim_t>(limit.hard, 65'536));
  if (limit.soft < kFewDescriptors) {
    findings.fault(kLimits, what + ": devices cannot be opened, or their calls answer EMFILE", todo);
  } else if (limit.soft < kSomeDescriptors) {
    findings.cost(kLimits, what + ": completion channels and peers on this host take some each", todo);
  }
}

// Advises to raise a limit. `option` is for ulimit, `unit` for systemd, `item` for limits.conf(5).
std::string lift(const Limit& limit, const char* option, const char* unit, const char* item) {
  if (limit.hard == RLIM_INFINITY) {
    return verbena::format("lift it where the program is started: ulimit {} unlimited", option);
  }
  return verbena::format(
      "the hard limit is finite, too: lift {} (systemd), or {} in /etc/security/limits.conf", unit, item);
}

void look_at_memory(Findings& findings) {
  const Limit space = limit_of(RLIMIT_AS);
  if (space.soft < kSmallAddressSpace) {
    findings.fault(
        kLimits,
        verbena::format(
            "a program may have {} MiB of address space (ulimit -v), and calls answer ENOMEM beyond it: "
            "what peers share is mapped, too",
            space.soft >> 20),
        lift(space, "-v", "LimitAS", "as"));
  }
  const Limit files = limit_of(RLIMIT_FSIZE);
  if (files.soft < kFewFileBytes) {
    findings.fault(
        kLimits,
        verbena::format("files may have {} bytes (ulimit -f), and shared memory is files in memory",
                        files.soft),
        lift(files, "-f", "LimitFSIZE", "fsize"));
  }
}

void look_at_threads(Findings& findings) {
  const Limit limit = limit_of(RLIMIT_NPROC);
  if (::geteuid() == 0 || limit.soft >= kFewThreads) return;
  findings.fault(
      kLimits,
      verbena::format("this user may have {} threads (ulimit -u), and each shard is one", limit.soft),
      limit.hard < kFewThreads
          ? verbena::format("the hard limit is {}: raise LimitNPROC (systemd), or nproc in "
                            "/etc/security/limits.conf",
                            limit.hard)
          : verbena::format("raise it where the program is started: ulimit -u {}",
                            std::min<rlim_t>(limit.hard, 4096)));
}

// Checks the space for the agent's directory, which holds its link table and the files that programs find as
// /sys.
void look_at_state_directory(Findings& findings) {
  const paths::PathText path = paths::state_home_for(::geteuid());
  if (!path.valid()) return;
  std::filesystem::path folder = path.c_str();
  std::error_code ignored;
  while (!std::filesystem::exists(folder, ignored) && folder.has_relative_path())
    folder = folder.parent_path();
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0 || room.f_blocks == 0) return;
  const unsigned long left = room.f_bavail * room.f_frsize;
  if (left >= kLittleStateRoom && (room.f_files == 0 || room.f_favail >= kFewFiles)) return;
  findings.fault(
      kLimits,
      verbena::format(
          "the file system of {} has {} KiB and {} files left: the agent cannot say there which devices "
          "there are, so programs find none in /sys",
          folder.string(), left >> 10, room.f_favail),
      verbena::format(
          "remove what fills it (du -x {0} | sort -n), or enlarge it: mount -o remount,size=1G {0}",
          folder.string()));
}

// Checks /dev/shm. Open MPI and UCX keep segments there and end with SIGBUS when it is full.
void look_at_shared_memory_files(Findings& findings) {
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) != 0 || ::access("/dev/shm", W_OK) != 0) {
    findings.cost(kLimits, "there is no /dev/shm to write to: Verbena needs none, Open MPI and UCX do",
                  "mount a tmpfs there, mode 1777; for a container, --tmpfs /dev/shm");
    return;
  }
  const unsigned long left = room.f_bavail * room.f_frsize;
  if (room.f_blocks != 0 && left < kLittleSharedMemory) {
    findings.cost(
        kLimits,
        verbena::format("/dev/shm has {} KiB left: Verbena needs none of it, Open MPI and UCX do",
                        left >> 10),
        "remove what ended programs left there, or enlarge it: mount -o remount,size=1G /dev/shm; for a "
        "container, --shm-size=1g");
  }
}

// Checks the limits of socket buffers. Root's sockets can exceed them.
void look_at_socket_buffers(Findings& findings) {
  if (::geteuid() == 0) return;
  for (const char* name : {"rmem_max", "wmem_max"}) {
    long bytes = kUsualSocketBytes;
    std::ifstream("/proc/sys/net/core/" + std::string(name)) >> bytes;
    if (bytes >= kUsualSocketBytes) continue;
    findings.cost(
        kLimits,
        verbena::format("net.core.{} is {}: between hosts, bursts are lost in so small buffers", name, bytes),
        verbena::format("as root: sysctl -w net.core.{}=4194304", name));
  }
}

}  // namespace

void look_at_limits(Findings& findings) {
  look_at_descriptors(findings);
  look_at_memory(findings);
  look_at_threads(findings);
  look_at_shared_memory_files(findings);
  look_at_state_directory(findings);
  look_at_socket_buffers(findings);
  if (!findings.amiss(kLimits)) {
    findings.fine(kLimits,
                  "descriptors, address space, files, threads, /run, /dev/shm and socket buffers suffice");
  }
}

}  // namespace verbena::commands::doctor
