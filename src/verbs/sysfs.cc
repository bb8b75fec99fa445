// SPDX-License-Identifier: Apache-2.0
// Where programs look for /sys, and how they read its files.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "paths/state_directory.h"
#include "verbs/abi.h"

namespace {

using verbena::verbs::without_exceptions;

// What the user says. A program run with another's rights does not let its caller say where to look.
std::string chosen_sysfs() {
  const char* wanted = ::secure_getenv("SYSFS_PATH");
  std::string path = wanted != nullptr ? wanted : "";
  if (path.size() > IBV_SYSFS_PATH_MAX) path.resize(IBV_SYSFS_PATH_MAX);
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

// Where the agent shows the devices, or nothing while there is no agent.
std::string agents_sysfs() {
  const auto directory = verbena::paths::find_state_directory();
  if (!directory) return {};
  const std::string path = *directory + "/sys";
  return ::access((path + "/class/infiniband").c_str(), R_OK) == 0 ? path : std::string();
}

// The answer, once it is final: callers keep the pointer.
class SysfsPath {
 public:
  const char* get() {
    if (const std::string* known = path_.load(std::memory_order_acquire)) return known->c_str();
    const std::lock_guard lock(mutex_);
    if (const std::string* known = path_.load(std::memory_order_relaxed)) return known->c_str();
    const std::string found = chosen_.empty() ? agents_sysfs() : chosen_;
    if (found.empty()) return "/sys";  // an agent may yet come
    const auto* path = new std::string(found);
    path_.store(path, std::memory_order_release);
    return path->c_str();
  }

 private:
  const std::string chosen_ = chosen_sysfs();
  std::mutex mutex_;
  std::atomic<const std::string*> path_{nullptr};
};

}  // namespace

VERBENA_ABI const char* ibv_get_sysfs_path() {
  const char* path = "/sys";
  without_exceptions([&] {
    static SysfsPath& sysfs = *new SysfsPath;  // never destroyed: threads outlive static objects
    path = sysfs.get();
    return 0;
  });
  return path;
}

// The file's length without its last newline, and a terminating zero; -1 when it cannot be read or has no
// room for the zero.
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
