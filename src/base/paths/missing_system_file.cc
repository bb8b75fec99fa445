// SPDX-License-Identifier: Apache-2.0
#include "base/paths/missing_system_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/unique_fd.h"

namespace verbena::paths {

const char* missing_system_file() {
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) {
    return "/proc is not mounted, which tells Verbena where its files are and which network namespace this "
           "is; as root: mount -t proc proc /proc";
  }
  if (!UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))) {
    return "/dev/null cannot be opened, which the agent needs; as root: mknod -m 666 /dev/null c 1 3";
  }
  return nullptr;
}

}  // namespace verbena::paths
