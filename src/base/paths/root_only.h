// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>
#include <sys/types.h>

namespace verbena::paths {

// Whether `owner` owns the file and nobody else may write to it. Covers access control lists, too: the group
// bits are their mask.
inline bool only_written_by(uid_t owner, const struct stat& status) {
  return status.st_uid == owner && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A file that users other than root can change, or a directory or link on the way to it.
struct Changeable {
  std::string path;
  int error = 0;  // an errno value if it cannot be examined. 0: owner and mode are the reason
  uid_t owner = 0;
  mode_t mode = 0;

  // The reason and the command that fixes it, as a sentence for the user.
  std::string why() const;
};

// Returns the first changeable file on the way to `path`: examines each directory from the root on, each
// symbolic link, and the way to its target. A sticky directory counts, since users who may write there can
// put files beside ours. Nothing if a file is missing and only root can create it. REQUIRES: the path is
// absolute
std::optional<Changeable> find_changeable(const std::string& path);

}  // namespace verbena::paths
