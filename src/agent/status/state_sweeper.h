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

// Locks an agent's state directory. An agent holds this lock for its whole life; the kernel releases it even
// if the agent is killed.
UniqueFd lock_state_directory(const std::string& directory);

// Locks a mirror's directory by a file that no other user may open. The directory itself can be locked by any
// user that can read it.
UniqueFd lock_mirror_directory(const std::string& directory);

// Renames the directory, so that its name is free before it is removed. Removing may take seconds: with the
// mount option `discard`, a file system tells its disk of each removed file, and waits. Returns the new path,
// beside the old one; nothing if the file system fails.
std::optional<std::string> set_aside(const std::string& directory);

// Removes a file, or a directory with all its content. Before each file, checks `is_over` and returns false
// if it is true. A missing file is no error. Throws std::filesystem::filesystem_error.
bool remove_by_and_by(const std::string& path, const std::function<bool()>& is_over);

// Returns the inode numbers of the network namespaces of all visible processes.
std::set<uint64_t> living_network_namespaces();

// Removes what killed agents have left in `home` (paths::state_home_for()). That is what they had set aside,
// and directories of network namespaces that no longer exist. A directory stays while an agent holds its lock
// or is about to start in it. A directory under its own name also stays while its namespace is in living():
// the next agent continues with it. Trace files stay for an hour, because a named namespace can live without
// a process. Checks `is_over` before each file. Returns how many entries it removed.
size_t sweep_state_directories(const std::string& home, const std::function<std::set<uint64_t>()>& living,
                               const std::function<bool()>& is_over);

// Sweeps once, some time after the agent's start. Uses a thread of its own, so that clients do not wait.
class StateSweeper {
 public:
  StateSweeper(std::string home, Duration delay);
  // Waits until the removal of the current file is complete.
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
