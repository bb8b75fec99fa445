// SPDX-License-Identifier: Apache-2.0
// The path under which programs find /sys, and how they read its files.
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include "base/only_one.h"
#include "base/paths/state_directory.h"
#include "base/unique_fd.h"
#include "libraries/libibverbs/abi.h"

namespace {

using verbena::verbs::without_exceptions;

// Returns the path that the user chose in the environment. A set-user-ID program ignores the environment,
// which its caller controls.
std::string chosen_sysfs() {
  const char* wanted = ::secure_getenv("SYSFS_PATH");
  std::string path = wanted != nullptr ? wanted : "";
  if (path.size() > IBV_SYSFS_PATH_MAX) path.resize(IBV_SYSFS_PATH_MAX);
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

// Returns the path where the agent shows the devices; empty if there is no agent.
std::string agents_sysfs() {
  const auto directory = verbena::paths::find_state_directory();
  if (!directory) return {};
  const std::string path = *directory + "/sys";
  return ::access((path + "/class/infiniband").c_str(), R_OK) == 0 ? path : std::string();
}

// The user's choice, and the result once it is final. Callers keep the pointer to the result.
constinit verbena::OnlyOne<std::string> chosen;
constinit verbena::OnlyOne<std::string> answer;

const char* sysfs_path() {
  if (const std::string* known = answer.made()) return known->c_str();
  std::string found = chosen.get([] { return new std::string(chosen_sysfs()); });
  if (found.empty()) found = agents_sysfs();
  if (found.empty()) return "/sys";  // not final: an agent may start later
  return answer.get([&] { return new std::string(found); }).c_str();
}

}  // namespace

VERBENA_ABI const char* ibv_get_sysfs_path() {
  const char* path = "/sys";
  without_exceptions([&] {
    path = sysfs_path();
    return 0;
  });
  return path;
}

// Reads a file of sysfs. Returns its length without the last newline, and adds a terminating zero. Returns -1
// if the file cannot be read or the zero does not fit.
VERBENA_ABI int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  int length = -1;
  verbena::verbs::answer_code([&] {
    const std::string path = std::string(dir) + '/' + file;
    const verbena::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return errno;
    const ssize_t got = ::read(fd.get(), buf, size);
    if (got < 0) return errno;
    auto used = static_cast<size_t>(got);
    if (used > 0) {
      if (buf[used - 1] == '\n') {
        buf[--used] = '\0';
      } else if (used < size) {
        buf[used] = '\0';
      } else {
        return EOVERFLOW;
      }
    }
    length = static_cast<int>(used);
    return 0;
  });
  return length;
}
