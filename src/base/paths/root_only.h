// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>
#include <sys/types.h>

namespace verbena::paths {

// Whether `owner` owns what this describes, and nobody else may write to it. An access control list counts,
// too: the bits of the group are its mask.
inline bool only_written_by(uid_t owner, const struct stat& status) {
  return status.st_uid == owner && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A file that others than root can change, or a folder or link on the way to it.
struct Changeable {
  std::string path;
  int error = 0;  // an errno value: it cannot be looked at. 0: these two say why
  uid_t owner = 0;
  mode_t mode = 0;

  // The reason, and the command that mends it, as a sentence for the user.
  std::string why() const;
};

// Looks for one on the way to `path`: at each folder from the root on, at each symbolic link, and at all that
// leads to its target. A sticky folder counts as well: users who may write there can put files beside ours.
// Nothing is found where a file is missing and only root can make it. REQUIRES: the path is absolute
std::optional<Changeable> find_changeable(const std::string& path);

}  // namespace verbena::paths
