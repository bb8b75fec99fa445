// SPDX-License-Identifier: Apache-2.0
#include "base/paths/root_only.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <unistd.h>

#include "base/format.h"

namespace verbena::paths {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit

// Resolves a path from the root on as the kernel does, and checks each step.
class Walk {
 public:
  explicit Walk(std::string path) : left_(std::move(path)) {}

  std::optional<Changeable> run() {
    struct stat root {};
    if (::lstat("/", &root) != 0) return Changeable{"/", errno};
    if (!only_written_by(0, root)) return Changeable{"/", 0, root.st_uid, root.st_mode};
    for (std::string name = take_name(); !name.empty(); name = take_name()) {
      if (name == ".") continue;
      if (name == "..") {
        here_.resize(std::min(here_.rfind('/'), here_.size()));
        continue;
      }
      if (auto found = enter(here_ + '/' + name); found || is_missing_) return found;
    }
    return std::nullopt;
  }

 private:
  std::string take_name() {
    left_.erase(0, std::min(left_.find_first_not_of('/'), left_.size()));
    const size_t end = std::min(left_.find('/'), left_.size());
    std::string name = left_.substr(0, end);
    left_.erase(0, end);
    return name;
  }

  std::optional<Changeable> enter(const std::string& next) {
    struct stat status {};
    if (::lstat(next.c_str(), &status) != 0) {
      is_missing_ = errno == ENOENT;
      return is_missing_ ? std::nullopt : std::optional(Changeable{next, errno});
    }
    if (S_ISLNK(status.st_mode)) return follow(next, status);
    if (!only_written_by(0, status)) return Changeable{next, 0, status.st_uid, status.st_mode};
    here_ = next;
    return std::nullopt;
  }

  // Checks a link's owner only: its mode means nothing.
  std::optional<Changeable> follow(const std::string& link, const struct stat& status) {
    if (status.st_uid != 0) return Changeable{link, 0, status.st_uid, 0};
    char target[PATH_MAX];
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
    if (length < 0) return Changeable{link, errno};
    if (++links_ > kMaxLinks) return Changeable{link, ELOOP};
    left_.insert(0, target, static_cast<size_t>(length));
    if (target[0] == '/') here_.clear();
    return std::nullopt;
  }

  std::string here_;  // without links; empty: the root
  std::string left_;
  int links_ = 0;
  bool is_missing_ = false;
};

}  // namespace

std::string Changeable::why() const {
  if (error != 0) return verbena::format("'{}' cannot be checked: {}", path, std::strerror(error));
  if (owner != 0) {
    return verbena::format("'{0}' belongs to user {1}, not to root: chown -h root '{0}'", path, owner);
  }
  const mode_t bits = mode & 07777;
  if ((bits & S_ISVTX) != 0) {
    return verbena::format("others than root may write to '{}' (mode {:04o}; sticky does not help)", path,
                           bits);
  }
  return verbena::format("others than root may write to '{0}' (mode {1:04o}): chmod go-w '{0}'", path, bits);
}

std::optional<Changeable> find_changeable(const std::string& path) {
  return Walk(path).run();
}

}  // namespace verbena::paths
