// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/format.h"
#include "base/paths/state_directory.h"
#include "base/unique_fd.h"
#include "commands/doctor/checks.h"

namespace verbena::commands::doctor {
namespace {

constexpr const char* kKernel = "kernel";

// Whether a seccomp filter is active (proc(5)). Then system calls that the kernel has may still fail.
bool is_filtered() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Seccomp:")) return line.find_first_of("12") != std::string::npos;
  }
  return false;
}

std::string because(int error) {
  return verbena::format("({}{})", std::strerror(error),
                         is_filtered() ? "; a seccomp filter is in force, as in a container" : "");
}

const char* remedy() {
  return is_filtered() ? "let the sandbox's profile allow it; for a container, --security-opt seccomp=FILE"
                       : "use a kernel of Linux 5.10 or later";
}

// Reports that a system call does not work. `what` has a place for the reason, which is in errno.
void require(bool works, fmt::format_string<std::string> what, Findings& findings) {
  if (!works) findings.fault(kKernel, verbena::format(what, because(errno)), remedy());
}

void look_at_calls(Findings& findings) {
  const UniqueFd file(::memfd_create("verbena-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool is_sealed =
      file && ::ftruncate(file.get(), 4096) == 0 && ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  require(
      is_sealed,
      "files in memory with seals cannot be made, memfd_create(2) {}, and all that is shared lies in them",
      findings);
  const UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  require(
      static_cast<bool>(self),
      "there are no descriptors of processes, pidfd_open(2) {}, by which the agent sees that a program has "
      "ended",
      findings);
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  require(static_cast<bool>(event), "there are no event descriptors, eventfd(2) {}", findings);
}

// Tests process_vm_readv(2) with this process's own memory. Some sandboxes forbid it, as they do ptrace(2);
// security modules do not interfere with a process's own memory.
void look_at_memory_of_processes(Findings& findings) {
  char from = 'v';
  char to = 0;
  const iovec source{&from, 1};
  const iovec target{&to, 1};
  if (::process_vm_readv(::getpid(), &target, 1, &source, 1, 0) == 1) return;
  findings.cost(
      kKernel,
      verbena::format("processes cannot reach each other's memory, process_vm_readv(2) {}: on one host, "
                      "READs and WRITEs go as messages, which the target has to answer",
                      because(errno)),
      is_filtered() ? "let the sandbox's profile allow it, or use 'verbena run --shared-memory'"
                    : "use 'verbena run --shared-memory'");
}

void look_at_yama(Findings& findings) {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  if (scope == 0) return;
  findings.cost(
      kKernel,
      verbena::format(
          "kernel.yama.ptrace_scope is {}: on one host, READs and WRITEs of memory that is not shared go as "
          "messages, which the target has to answer",
          scope),
      "use 'verbena run --shared-memory', or, where users trust their own programs, as root: sysctl -w "
      "kernel.yama.ptrace_scope=0");
}

void look_at_system_files(Findings& findings) {
  const char* missing = paths::missing_system_file();
  if (missing == nullptr) return;
  const std::string_view sentence = missing;
  const size_t remedy_at = sentence.find("; ");
  findings.fault(kKernel, std::string(sentence.substr(0, remedy_at)),
                 std::string(sentence.substr(remedy_at + 2)));
}

}  // namespace

void look_at_kernel(Findings& findings) {
  look_at_system_files(findings);
  look_at_calls(findings);
  look_at_memory_of_processes(findings);
  look_at_yama(findings);
  if (!findings.amiss(kKernel)) {
    findings.fine(kKernel,
                  "allows files in memory, descriptors of processes, and memory to be reached from outside");
  }
}

}  // namespace verbena::commands::doctor
