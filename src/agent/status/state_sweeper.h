// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// An agent holds this lock on its state directory for as long as it lives, whatever ends it.
UniqueFd lock_state_directory(const std::string& directory);

// The same for a mirror. By a file in the directory, which nobody else may open: a directory can be locked by
// all who can read it.
UniqueFd lock_mirror_directory(const std::string& directory);

// Takes the directory's name from it, for another to have, before it is removed: that may take seconds, as a
// file system may tell its disk of each file that is removed (`discard`), and wait for it. Answers where it
// is then: beside where it was; nothing where the file system does not do it.
std::optional<std::string> set_aside(const std::string& directory);

// Removes a file, or a directory with all that is in it. Looks whether it `is_over` before each, and then
// leaves the rest: false. Nothing that is not there is an error. Throws std::filesystem::filesystem_error.
bool remove_by_and_by(const std::string& path, const std::function<bool()>& is_over);

// The inode numbers of the network namespaces of all processes that can be seen.
std::set<uint64_t> living_network_namespaces();

// Removes what agents that were killed have left in `home` (paths::state_home_for()) for network namespaces
// that are gone, or had set aside: nobody else would. A directory stays while an agent holds its lock, or is
// about to begin in it; one that has its name, too, while its namespace is among living(): a killed agent's
// successor goes on with it. Traces stay for an hour: a namespace that has a name needs no process to live.
// Looks whether it `is_over` before each; answers how many it removed.
size_t sweep_state_directories(const std::string& home, const std::function<std::set<uint64_t>()>& living,
                               const std::function<bool()>& is_over);

// Sweeps once, some time after the agent's start, on a thread of its own: its clients do not wait meanwhile.
class StateSweeper {
 public:
  StateSweeper(std::string home, Duration delay);
  // Waits until the file is removed that it is about to remove.
  ~StateSweeper();
  StateSweeper(const StateSweeper&) = delete;
  StateSweeper& operator=(const StateSweeper&) = delete;

 private:
  void run(Duration delay);
  bool is_over();

  const std::string home_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace verbena::agent
