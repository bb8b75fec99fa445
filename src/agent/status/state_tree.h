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

// Keeps the directory in which programs see the devices as they would in /sys and /dev (see
// base/paths/state_directory.h). A device's folder changes as a whole: a reader sees the old one or the new
// one. What is no longer shown is removed apart from that, as it takes long (state_sweeper.h).
//
// The directory belongs to us alone (make_state_directory() saw to that), so what lies in it may be believed,
// but it may be out of date: an agent that was killed leaves it behind. No failure here is serious: it is
// logged when it is another than the last, and the devices work without.
class StateTree {
 public:
  explicit StateTree(std::string directory) : directory_(std::move(directory)) {}
  // Removes the directory.
  ~StateTree();
  // Nothing is shown any more: the directory has another name until it is removed. False: it has not.
  bool step_aside();
  StateTree(const StateTree&) = delete;
  StateTree& operator=(const StateTree&) = delete;

  // False: not all of it can be written. To be called again.
  bool show(const std::vector<control::Link>& links);
  void show_counters(const std::string& link, const DeviceCounters& counters);
  bool has_discarded() const { return !discarded_.empty(); }
  // Removes what is not shown any more; looks whether it `is_over` before each file.
  void remove_discarded(const std::function<bool()>& is_over);
  // Of another thread; what we have it watch is ours.
  CounterReaders& readers() { return readers_; }

 private:
  // Whether it does not fail.
  template <class Work>
  bool attempt(Work work);
  // A new path, which nobody looks at. What is there at last is removed later.
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
  std::vector<std::string> discarded_;  // paths; there may be nothing
  uint64_t spare_paths_ = 0;
  bool begun_ = false;
  std::string last_failure_;
};

}  // namespace verbena::agent
