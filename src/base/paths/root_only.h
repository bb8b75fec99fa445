// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>
#include <sys/types.h>

namespace verbena::paths {

// Whether `owner` owns the file and nobody else may write to it. Covers access control lists, too: with a
// list, the group bits are the maximum that the list grants.
inline bool only_written_by(uid_t owner, const struct stat& status) {
  return status.st_uid == owner && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A reason not to trust a path: a file, directory or link that users other than root can change, or that
// cannot be examined.
struct Changeable {
  std::string path;
  int error = 0;  // an errno value if the file cannot be examined; 0 if owner or mode is the reason
  uid_t owner = 0;
  mode_t mode = 0;

  // Returns a sentence for the user: the path, the reason and, except for sticky directories and errors, the
  // command that fixes it.
  std::string why() const;
};

// Returns the first file, directory or link on the way to `path` that is Changeable. Examines each directory
// from the root on, each symbolic link, and the way to the link's target. A sticky directory counts, since
// users who may write there can put files beside ours. Returns nullopt if there is none. Also returns nullopt
// if a file on the way is missing, since then only root can create the file. REQUIRES: the path is absolute
std::optional<Changeable> find_changeable(const std::string& path);

}  // namespace verbena::paths
