// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace verbena::test {

// Returns the epoll sets of this process that are in another one, each as "SET in SET". EPOLL_CTL_ADD to such
// a set takes a lock of the whole host, which any user can make last for a second (PolledSets).
inline std::vector<std::string> nested_epoll_sets() {
  std::vector<std::string> nested;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    std::string word;
    while (info >> word) {
      std::string member;
      if (word != "tfd:" || !(info >> member)) continue;
      std::error_code unreadable;
      const auto target = std::filesystem::read_symlink("/proc/self/fd/" + member, unreadable);
      if (target == "anon_inode:[eventpoll]")
        nested.push_back(member + " in " + entry.path().filename().string());
    }
  }
  return nested;
}

}  // namespace verbena::test
