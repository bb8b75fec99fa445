// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/program_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include <elf.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/format.h"
#include "base/text.h"
#include "commands/doctor/elf_file.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/report.h"

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

bool may_gain_privilege(const fs::path& file) {
  struct statvfs mount {};
  const bool is_ignored = ::statvfs(file.c_str(), &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0;
  return !is_ignored && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
}

constexpr const char* kShell = "/bin/sh";  // as execvp(3)

struct Machine {
  uint16_t number;
  std::string_view name;
};

constexpr std::array kMachines = std::to_array<Machine>({
    {EM_386, "32-bit x86"},
    {EM_X86_64, "x86-64"},
    {EM_ARM, "32-bit ARM"},
    {EM_AARCH64, "64-bit ARM"},
    {EM_PPC64, "64-bit POWER"},
    {EM_S390, "S/390"},
    {EM_RISCV, "RISC-V"},
    {EM_MIPS, "MIPS"},
});

std::string name_of_machine(uint16_t number) {
  for (const Machine& machine : kMachines) {
    if (machine.number == number) return std::string(machine.name);
  }
  return verbena::format("ELF machine {}", number);
}

void execute(const fs::path& file, const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(file.c_str(), arguments.data());
}

// Whether a file is text, by the shells' rule: no zero byte in the first line.
bool is_text(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line.find('\0') == std::string::npos;
}

// The reason for ENOEXEC with an ELF file: neither the kernel nor binfmt_misc can run it.
std::string reason_to_refuse(const doctor::ElfFile& elf) {
  const uint16_t own = doctor::own_elf_file().machine;
  if (elf.machine == own) return "the kernel does not take this ELF file; it is damaged, or no program";
  return verbena::format(
      "it is built for {}, and this machine is {}; take one that is built for this machine",
      name_of_machine(elf.machine), name_of_machine(own));
}

// The reason for ENOENT although the file exists: its loader or interpreter is missing.
std::string missing_interpreter(const fs::path& file) {
  if (const auto elf = doctor::read_elf_file(file)) return elf->interpreter;
  return interpreter_of_script(file);
}

std::string why_no_permission(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) return "it is a directory";
  const fs::perms mode = fs::status(file, ignored).permissions();
  constexpr fs::perms kAnyExecute = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
  if (fs::is_regular_file(file, ignored) && (mode & kAnyExecute) == fs::perms::none)
    return verbena::format("it is not executable; if it is a program, 'chmod +x {}'", file.string());
  return "this user may not execute it (its mode, its directories', or a mount with noexec)";
}

int explain_failure(const fs::path& file, const std::string& name, int error) {
  std::error_code ignored;
  if (error == ENOENT && !fs::exists(file, ignored)) {
    complain("there is no program '{}'{}", name,
             file.empty() ? " in PATH; if it lies elsewhere, give its path, such as ./" + name : "");
    return kNotFound;
  }
  std::string reason = std::strerror(error);
  if (error == ENOENT) {
    reason = verbena::format("it needs '{}', which is not there", missing_interpreter(file));
  } else if (error == EACCES) {
    reason = why_no_permission(file);
  } else if (error == ENOEXEC) {
    const auto elf = doctor::read_elf_file(file);
    reason = elf ? reason_to_refuse(*elf) : "it is neither a program nor a script";
  }
  complain("cannot run '{}': {}", printable(name), printable(reason));
  return kNotExecutable;
}

}  // namespace

std::vector<std::string> split(std::string_view list, const char* separators) {
  std::vector<std::string> items;
  for (size_t begin = 0; !list.empty() && begin <= list.size();) {
    const size_t end = std::min(list.find_first_of(separators, begin), list.size());
    items.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* variable = std::getenv("PATH");
  const bool is_set = variable != nullptr && *variable != '\0';
  for (const std::string& folder : split(is_set ? variable : kDefaultPath, ":")) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (::access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate, ignored)) return candidate;
  }
  return {};
}

std::string interpreter_of_script(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  char mark[2] = {};
  if (!stream.read(mark, 2) || mark[0] != '#' || mark[1] != '!' || !std::getline(stream, line)) return {};
  std::istringstream words(line);
  std::string program;
  std::string argument;
  words >> program >> argument;
  return fs::path(program).filename() == "env" && !argument.empty() ? argument : program;
}

const char* privilege_gained_by(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || !may_gain_privilege(file))
    return nullptr;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) return "set-user-ID";
  // S_ISGID without S_IXGRP means mandatory locking.
  constexpr mode_t kGroup = S_ISGID | S_IXGRP;
  if ((status.st_mode & kGroup) == kGroup && status.st_gid != ::getgid()) return "set-group-ID";
  const bool has_capabilities = ::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
  if (has_capabilities && ::getuid() != 0) return "given file capabilities";
  return nullptr;
}

int start_program(const fs::path& file, const std::vector<std::string>& command) {
  int error = ENOENT;
  if (!file.empty()) {
    execute(file, command);
    error = errno;
  }
  if (error == ENOEXEC && !doctor::read_elf_file(file) && is_text(file)) {
    std::vector<std::string> words{kShell, file.string()};
    words.insert(words.end(), command.begin() + 1, command.end());
    execute(kShell, words);
    error = errno;
  }
  return explain_failure(file, command[0], error);
}

}  // namespace verbena::commands
