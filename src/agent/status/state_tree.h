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
// the new one, if the file system has RENAME_EXCHANGE. Replaced folders are removed later, by
// remove_discarded(), because that takes long.
//
// Only the agent can write to the directory, as make_state_directory() ensures, so its content can be
// trusted. The content may be a killed agent's and out of date until the first show(). Failures are not
// serious, because the devices work without the directory: a failure is only logged, if it differs from the
// previous one.
class StateTree {
 public:
  explicit StateTree(std::string directory) : directory_(std::move(directory)) {}
  // Removes the directory.
  ~StateTree();
  // Renames the directory, so that programs no longer find it; the destructor removes it. Returns false if
  // the directory could not be renamed.
  bool step_aside();
  StateTree(const StateTree&) = delete;
  StateTree& operator=(const StateTree&) = delete;

  // Makes the directory show exactly the devices of `links`. Returns false if part of that failed; the caller
  // then repeats the call later.
  bool show(const std::vector<control::Link>& links);
  // Writes the counter files that have changed. Ignores a link that show() has not written.
  void show_counters(const std::string& link, const DeviceCounters& counters);
  bool has_discarded() const { return !discarded_.empty(); }
  // Removes replaced folders and temporary files. Stops once `is_over`, called before each file, is true.
  void remove_discarded(const std::function<bool()>& is_over);
  // Returns the readers of the counter files, for use on another thread. Only this tree calls watch().
  CounterReaders& readers() { return readers_; }

 private:
  // Runs `work`. Logs an exception and returns false.
  template <class Work>
  bool attempt(Work work);
  // Returns a new path for temporary files. remove_discarded() removes the file that is there then.
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
