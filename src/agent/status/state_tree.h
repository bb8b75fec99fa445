// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/time.h"
#include "base/unique_fd.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"

namespace verbena::agent {

class EventLoop;

// A file or symbolic link to be created in a new folder.
struct FolderEntry {
  std::string path;  // relative to the folder
  std::string text;  // the content, or the link's target
  bool is_link = false;
};
using Folder = std::vector<FolderEntry>;

// The functions below return the sysfs files of RDMA devices, in the kernel's formats
// (drivers/infiniband/core/sysfs.c and sw/rxe; Documentation/ABI/stable/sysfs-class-infiniband). They do no
// I/O.

// Returns the folder of a link's hardware device, as under /sys/devices. The folder contains the class
// devices infiniband/<link>, infiniband_verbs/<uverbs_name>, infiniband_mad/<umad_name> and
// infiniband_mad/<issm_name>. The folder must be put three levels below /sys, because its symbolic links to
// /sys/class are relative.
Folder device_folder(const control::Link& link, std::string_view version);
// Returns the folder /sys/devices/virtual/misc/rdma_cm.
Folder connection_manager_folder();

// Return the names of the link's character devices, as in ibv_device::dev_name.
std::string uverbs_name(const control::Link& link);
std::string umad_name(const control::Link& link);
std::string issm_name(const control::Link& link);

// Finds out by inotify whether a program has a counter file open. Programs open these files once and read
// them many times, so the files must be current while open. While no program has one open, frequent updates
// would waste time.
//
// watch() may be called on a different thread than the other methods.
class CounterReaders {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(10);

  CounterReaders();

  // Watches the files of this folder until the folder is removed.
  void watch(const std::string& folder);

  // Returns a descriptor that is readable when take_news() has events, or -1 without inotify.
  int fd() const { return fd_.get(); }
  // Makes the loop call take_news() when there are events, but at most once in each `pause`. Anybody may open
  // the files, and could otherwise keep the loop busy with events. Calls `on_first` if a program has a file
  // open now, and none had before. REQUIRES: the loop runs only while this object exists
  void watch_in(EventLoop& loop, std::function<void()> on_first, Duration pause = kPause);
  // Reads some of the events that have come: a bounded number, so that a flood of them keeps nobody waiting.
  void take_news();
  // Returns whether a program has a counter file open, as of the last take_news().
  bool any() const;

 private:
  UniqueFd fd_;
  std::map<int, int64_t> open_;  // number of open files, by watched folder
};

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

// Maintains a StateTree (the state directory) on a thread of its own, so that a slow file system does not
// delay the agent's answers. Skips states that are superseded before they are written, and repeats a failed
// show() every second. All methods are called on one thread.
class StateWriter {
 public:
  explicit StateWriter(std::string directory);
  // Stops the thread and removes the directory, which may take long.
  ~StateWriter();
  // Stops the thread and renames the directory, so that the next agent can use the name. Returns false if the
  // directory could not be renamed; then the caller must destroy this object before the next agent starts.
  // REQUIRES: this is the last call
  bool step_aside();

  // Queue links and counters to be written, and return at once. Counters of unknown links are dropped.
  void show(const std::vector<control::Link>& links);
  void show_counters(std::map<std::string, DeviceCounters> by_link);
  // Returns the readers of the counter files, for the thread that calls these methods.
  CounterReaders& readers() { return tree_.readers(); }
  // Waits until the thread has tried to write all queued states, or until the deadline.
  void wait(TimePoint deadline);

 private:
  void run();
  void stop();
  // Returns whether the thread has more urgent work than to remove replaced folders.
  bool is_wanted();

  StateTree tree_;  // used by the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<control::Link>> links_;
  std::map<std::string, DeviceCounters> counters_;
  bool writing_ = false;
  bool stop_ = false;
  std::thread thread_;  // absent if it could not be started
};

}  // namespace verbena::agent
