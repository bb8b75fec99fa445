// SPDX-License-Identifier: Apache-2.0
#include "base/paths/state_directory.h"

#include <cstdlib>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths/state_path.h"
#include "base/paths/users.h"

namespace verbena::paths {

namespace {

// An agent that exits may remove the parent directory between our two steps, so try again.
constexpr int kAttempts = 16;

// Creates the directory with mode 0700 and then changes the mode, since mkdir()'s mode is subject to the
// umask.
Result<void> make_directory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), 0700) != 0) {
    if (errno != EEXIST) return fail(errno);
    if (is_trusted_directory(path.c_str())) return {};
    struct stat status {};
    return fail(lstat(path.c_str(), &status) != 0 && errno == ENOENT ? ENOENT : EPERM);
  }
  if (chmod(path.c_str(), mode) != 0) return fail(errno);
  return {};
}

// Creates a home for a user whose usual one is taken by another user. If several processes do so at once, all
// go on with the first by name.
void make_drawn_home(uid_t owner, PathText home) {
  if (!add_drawn_suffix(home) || mkdir(home.c_str(), 0700) != 0) return;
  if (state_home_for(owner).view() != home.view()) rmdir(home.c_str());
}

Result<std::string> make_in_home(std::string_view suffix) {
  const uid_t owner = own_user();
  const mode_t mode = owner == 0 ? 0755 : 0700;
  Result<void> made;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const PathText home = state_home_for(owner);
    const PathText path = state_path_for(owner).add(suffix);
    if (!path.valid()) return fail(ENOENT);
    made = make_directory(home.c_str(), mode);
    if (!made && made.error().code == EPERM && home.view().starts_with("/tmp/")) {
      make_drawn_home(owner, home);
      continue;
    }
    if (made) made = make_directory(path.c_str(), mode);
    if (made) return std::string(path.c_str());
    if (made.error().code != ENOENT) break;
  }
  return tl::unexpected(made.error());
}

}  // namespace

std::string state_directory_for(uid_t owner) {
  const PathText path = state_path_for(owner);
  return path.valid() ? path.c_str() : std::string();
}

std::optional<std::string> find_state_directory() {
  const PathText path = find_state_path(secure_getenv("VERBENA_SYS_DIR"));
  if (!path.valid()) return std::nullopt;
  return path.c_str();
}

Result<std::string> make_state_directory() {
  return make_in_home({});
}

Result<std::string> make_mirror_directory() {
  return make_in_home(kMirrorSuffix);
}

// The file gets its final name after it is locked: so no other process can open it, and lock it, before.
Result<UniqueFd> mark_in_use(const std::string& directory) {
  const std::string fresh = directory + "/.in_use";
  ::unlink(fresh.c_str());
  UniqueFd fd(::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return fail(errno);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0 || ::fchmod(fd.get(), 0644) != 0 ||
      ::rename(fresh.c_str(), (directory + kInUse).c_str()) != 0) {
    return fail(errno);
  }
  return fd;
}

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
