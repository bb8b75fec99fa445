// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/program_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

bool may_gain_privilege(const fs::path& file) {
  struct statvfs mount {};
  const bool is_ignored = ::statvfs(file.c_str(), &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0;
  return !is_ignored && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
}

}  // namespace

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* variable = std::getenv("PATH");
  const std::string path(variable == nullptr || *variable == '\0' ? kDefaultPath
                                                                  : std::string_view(variable));
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path folder = path.substr(begin, end - begin);
    const fs::path candidate = (folder.empty() ? fs::path(".") : folder) / name;
    std::error_code ignored;
    if (::access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate, ignored)) return candidate;
    begin = end + 1;
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

}  // namespace verbena::commands
