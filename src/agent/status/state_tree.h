// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/status/counter_readers.h"
#include "agent/status/device_files.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"

namespace verbena::agent {

using control::DeviceCounters;

// Maintains the directory in which programs see the devices as in /sys and /dev
// (base/paths/state_directory.h). A device's folder is replaced as a whole: a reader sees either the old or
// the new one. Discarded folders are removed later, because that takes long (state_sweeper.h).
//
// Only the agent can write to the directory, as make_state_directory() ensures, so its content can be
// trusted. It may be out of date: a killed agent leaves it behind. Failures are not serious: they are logged
// when they differ from the previous one, and the devices work without the directory.
class StateTree {
 public:
  explicit StateTree(std::string directory) : directory_(std::move(directory)) {}
  // Removes the directory.
  ~StateTree();
  // Renames the directory, so that nothing is shown any more; the destructor removes it. False if it keeps
  // its name.
  bool step_aside();
  StateTree(const StateTree&) = delete;
  StateTree& operator=(const StateTree&) = delete;

  // Writes the links' devices. False if part of that failed: call it again later.
  bool show(const std::vector<control::Link>& links);
  void show_counters(const std::string& link, const DeviceCounters& counters);
  bool has_discarded() const { return !discarded_.empty(); }
  // Removes discarded folders. Before each file, checks `is_over` and returns if it is true.
  void remove_discarded(const std::function<bool()>& is_over);
  // For another thread. Only this tree calls watch().
  CounterReaders& readers() { return readers_; }

 private:
  // Runs `work`; false if it throws.
  template <class Work>
  bool attempt(Work work);
  // Returns a new path for temporary files. The path's final content is removed later.
  std::string spare_path();
  void discard_what_was_left();
  void put_device(const control::Link& link);
  void put_connection_manager();
  void put_folder(const std::string& path, const Folder& folder);
  void put_in_place(const std::string& fresh, const std::string& path);
  void write_counter(const std::string& path, uint64_t value);
  void put_file(const std::string& path, std::string_view text);
  void put_link(const std::string& path, const std::string& target);
  void remove_strangers(const std::string& path, const std::vector<std::string>& known);

  std::string directory_;
  std::map<std::string, control::Link> shown_;  // by name
  std::map<std::string, DeviceCounters> counters_;
  CounterReaders readers_;
  std::vector<std::string> discarded_;  // paths, which may not exist
  uint64_t spare_paths_ = 0;
  bool begun_ = false;
  std::string last_failure_;
};

}  // namespace verbena::agent
