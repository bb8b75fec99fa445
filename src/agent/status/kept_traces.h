// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include <sys/types.h>
#include <unistd.h>

#include "agent/sessions/client_files.h"
#include "agent/slots/slot_table.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The two functions below copy trace rings (control/protocol/trace_ring.h), which are at `offset` in the file
// `from`. They copy only the used part of the rings, to the same offsets within the copy; the rest is a hole.
// They do not trust the content of `from`, and do not wait for the rings' lock. ENODATA if the rings were
// never used, EIO if a read or write fails.

// Copies the rings into the file `to` at `to_offset`. Returns the number of bytes of the used parts.
Result<size_t> copy_rings(int from, size_t offset, int to, size_t to_offset);

// A copy of trace rings, at offset 0 of a new file that is sealed against writing.
struct TraceCopy {
  UniqueFd file;
  size_t bytes = 0;
};
Result<TraceCopy> copy_rings(int from, size_t offset);

class ConnectionTrace;

// Stores read-only copies of the traces of ended processes, up to a maximum number of processes, of bytes and
// of traces. When a maximum is exceeded, the user with the largest number (of processes, bytes or traces)
// loses a trace: its oldest trace that is not notable, or its oldest trace if all are notable. So one user's
// programs do not evict another's traces. A trace is notable if its process ended without giving the slot
// back, or if the trace has an error. Traces that are not notable are dropped after a minute.
//
// Traces are copied on their user's thread (ForeignCloser), because the process may make the copying take any
// time. For the agent's thread.
class KeptTraces {
 public:
  // REQUIRES: `closer` outlives this object; this object outlives the tasks of `closer`
  explicit KeptTraces(ForeignCloser& closer) : closer_(closer) {}

  static constexpr size_t kMaxProcesses = 16;
  static constexpr size_t kMaxBytes = 16 << 20;
  // Maximum number of traces of all processes. Each trace keeps a descriptor open. A process has one trace
  // per slot, and one for its connections.
  static constexpr size_t kMaxTraces = 64;
  // Returns the maximum number of traces for an agent that may open `descriptors`: a 32nd of them, at most
  // kMaxTraces. Each trace takes one descriptor.
  static constexpr size_t room_with(size_t descriptors) { return std::min(kMaxTraces, descriptors / 32); }
  static constexpr Duration kQuietTime = std::chrono::minutes(1);  // for traces that are not notable

  struct Kept {
    uint64_t number = 0;   // larger than those of all earlier traces
    uint64_t process = 0;  // the same for all slots of a process
    uint32_t slot = 0;     // or place_of(trace), for the trace of a process's connections
    pid_t pid = 0;
    uid_t uid = 0;
    std::string program;
    TimePoint ended{};
    bool in_order = false;    // the slot was given back
    bool is_notable = false;  // not `in_order`, or the trace has an error
    size_t bytes = 0;
    UniqueFd file{};  // TraceRings, read-only
  };

  // Starts to copy the trace out of a slot's status page. Called before the slot's lease ends. `in_order` is
  // true if the process gave the slot back, false if the process ended without doing so. Does not store an
  // unused trace. The trace is lost if the user may have no more descriptors. It is also lost if too many
  // copies for this user are unfinished: users share a quota of kMaxTraces unfinished copies.
  void keep(const LeasedSlot& slot, bool in_order, TimePoint now);
  // Starts to copy the connection trace of a client whose session has ended.
  void keep(const ConnectionTrace& trace, TimePoint now);
  // Drops expired traces, then returns the first trace whose number is `from` or higher, or nullptr. The
  // pointer is valid until the next call that may change the traces.
  const Kept* find(uint64_t from, TimePoint now);
  // Adds a trace, such as a former agent's, with the next number. Drops other traces if there are too many.
  void add(Kept kept);
  // Returns a process number that no other process has, for processes whose number is unknown.
  uint64_t new_process() { return kWithoutSession | ++unknown_processes_; }
  template <class Visit>
  void for_each_notable(Visit visit) const {
    for (const Kept& kept : kept_) {
      if (kept.is_notable) visit(kept);
    }
  }
  bool has_notable() const { return std::ranges::any_of(kept_, &Kept::is_notable); }

 private:
  static constexpr uint64_t kWithoutSession = uint64_t{1} << 63;

  void keep_copy(Kept kept, int file, size_t offset);
  struct Amount {
    size_t processes = 0, bytes = 0, traces = 0;
  };
  using Measure = size_t Amount::*;
  static Amount limits();
  std::map<uid_t, Amount> amounts() const;  // by user
  // Returns the measure (processes, bytes or traces) whose limit all users together exceed, or nullptr.
  static Measure exceeded(const std::map<uid_t, Amount>& amounts);
  void forget_quiet(TimePoint now);
  void forget_one(const std::map<uid_t, Amount>& amounts, Measure measure);
  void erase(std::list<Kept>::iterator kept);

  ForeignCloser& closer_;
  const std::shared_ptr<Quota> copies_ = std::make_shared<Quota>(Quota::Size::of(kMaxTraces), ::geteuid());
  std::list<Kept> kept_;  // the oldest first
  uint64_t next_ = 1;
  uint64_t unknown_processes_ = 0;
};

// Passes notable traces (see KeptTraces) from one agent to the next. An agent ends soon after the last
// program, and then writes these traces to a file beside its state directory. The next agent of the same user
// in the network namespace reads the file. A killed agent leaves no file.

inline constexpr Duration kLongestLeft = std::chrono::hours(1);  // older traces are not passed on

// Returns the path of the file, or an empty string if the network namespace is unknown.
std::string left_traces_path();

// Writes up to 64 notable traces to a new file, or only removes the old file if no trace is notable. On an
// error of the file system, returns the error and leaves no file. REQUIRES: no other user can write to the
// file's directory
Result<void> leave_traces(const KeptTraces& kept, const std::string& path);
// Removes the file and adds its traces to `kept`. Skips traces that are older than kLongestLeft, or from
// another boot or network namespace.
void take_left_traces(KeptTraces& kept, const std::string& path, TimePoint now);

}  // namespace verbena::agent
