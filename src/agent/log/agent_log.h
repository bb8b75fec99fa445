// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/log.h"
#include "base/time.h"

namespace verbena::agent {

// Writes lines to standard error. For a thread that may block: put() blocks while a full pipe is not read or
// a terminal is stopped.
class LogOutput {
 public:
  // Writes a line. Returns false if the line is lost, at least in part.
  bool put(std::string_view line);

 private:
  bool is_torn_ = false;  // the last line was written in part
};

// Returns the path of the agent's log file, which LogFile uses in place of the inherited standard error. The
// file lies beside the state directory of this network namespace, and so outlives the agent. Returns an empty
// string if another user can write to the file's directory.
std::string log_file_path();
// Returns the path to which LogFile renames a full log file.
std::string old_log_file_path();

// Makes standard error (descriptor 2) a log file, or /dev/null if no file can be created. Needed if the agent
// has inherited a pipe or a socket: its reader would get no end of file before the agent ends (`verbena run X
// 2>&1 | tail`). Terminals and files have no such reader, so the agent keeps them. When the file is larger
// than `max_bytes`, put() renames it to `old_path`, in place of the previous old file.
//
// put() is called by the thread that writes the log.
class LogFile {
 public:
  // Returns whether standard error is a pipe or a socket.
  static bool is_needed();

  LogFile(std::string path, std::string old_path, off_t max_bytes = off_t{1} << 20);

  // Writes a line. Returns false if the line is lost, at least in part.
  bool put(std::string_view line);

 private:
  void open();
  void look_at_size();

  const std::string path_;
  const std::string old_path_;
  const off_t max_bytes_;
  LogOutput output_;
};

// Limits the number of log lines per time window: for each user, for all users together, and for the agent
// itself. So no user can bury other messages under lines that its programs cause. A window starts with the
// first line after the previous window. At its end, take_reports() returns how many lines of each user were
// dropped.
//
// For one thread at a time. Has no clock: the caller passes the time.
class LogLimit {
 public:
  struct Sizes {
    size_t of_user = 50;  // maximum number of lines in a window
    size_t of_all = 500;  // one limit for all users together, another for the agent itself
    size_t users = 100;   // maximum number of users per window; lines of further users are dropped
    Duration window = std::chrono::seconds(10);
  };

  LogLimit() = default;
  explicit LogLimit(const Sizes& sizes) : sizes_(sizes) {}

  // Counts a line, and returns whether it may be written. `user` is the user whose request caused the line,
  // or nullopt for the agent's own lines. REQUIRES: take_reports(now) was called before
  bool admits(std::optional<uid_t> user, TimePoint now);
  // If the window is over, ends it and returns its reports of dropped lines; else returns none.
  std::vector<std::string> take_reports(TimePoint now);
  // Returns the time from which take_reports() has reports, or kNever if no line was dropped in this window.
  TimePoint report_due() const { return leaves_out_ ? end_ : kNever; }

 private:
  struct Count {
    size_t written = 0, left_out = 0;
  };
  Count* count_of(std::optional<uid_t> user);

  const Sizes sizes_{};
  std::map<std::optional<uid_t>, Count> counts_;  // in this window
  size_t written_of_users_ = 0;
  size_t left_out_of_others_ = 0;  // of users that are not counted separately
  bool leaves_out_ = false;
  TimePoint end_{};  // end of the window
};

// Queues log lines until they are written, up to `max_bytes` in total. Drops lines that do not fit or could
// not be written, and puts an entry with their number in their place.
//
// For one thread at a time.
class LogQueue {
 public:
  struct Entry {
    std::string line;
    size_t dropped = 0;  // if not 0, the entry stands for this many dropped lines
  };

  explicit LogQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  void add(std::string line);
  // Returns whether there is an entry to write now. After failed(), returns false until the next add(),
  // because an immediate retry would fail too.
  bool has_next() const { return !entries_.empty() && !is_failing_; }
  // Removes the first entry and returns it. REQUIRES: has_next()
  Entry take();
  // Records that `entry`, from take(), could not be written. Drops all queued lines too, which would fail for
  // the same reason.
  void failed(const Entry& entry);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  bool is_failing_ = false;
  std::deque<Entry> entries_;
};

// Queues the process's log lines and writes them on a thread of its own, so that no logging thread waits.
// Standard error may be a pipe without a reader, a stopped terminal, or a slow disk. Drops and counts lines
// when `max_bytes` are queued already, and lines of users that log too much (LogLimit). The writing thread
// starts with the first line.
//
// Installs itself as the process's log sink until it is destroyed. Any thread may log. REQUIRES: no thread
// logs during the destruction
class AgentLog final : public LogSink {
 public:
  // Writes a line, and may block while doing so. Returns false if the line could not be written.
  using Put = std::function<bool(std::string_view line)>;

  explicit AgentLog(Put put, size_t max_bytes = size_t{256} << 10, const LogLimit::Sizes& limits = {});
  // Waits up to kPatience for the queued lines to be written.
  ~AgentLog();
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  void write(std::string line) noexcept override;
  // Replaces the function that writes lines. Queued lines go to the new one, on a new thread. A thread that
  // hangs in the old function stays, but nothing waits for it.
  void write_by(Put put);
  // Waits until no line is queued or being written. Returns false if that takes longer than `patience`.
  bool flush(Duration patience = kPatience);

 private:
  struct State;
  struct Writer;
  static void* run(void* writer);
  void wake_writer();

  const std::shared_ptr<State> state_;  // a hanging thread may outlive this object
};

}  // namespace verbena::agent
