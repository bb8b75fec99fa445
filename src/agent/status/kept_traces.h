// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include <sys/types.h>

#include "agent/slots/slot_table.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

class ConnectionTrace;

// Keeps read-only copies of the traces of ended processes, up to maximum numbers of processes, bytes and
// traces. When a maximum is exceeded, the user with the most bytes loses a trace: the oldest unremarkable
// one, else the oldest. So one user's programs do not evict another's traces. A trace of a process that ended
// in order, without any error, is dropped after a minute.
class KeptTraces {
 public:
  static constexpr size_t kMaxProcesses = 16;
  static constexpr size_t kMaxBytes = 16 << 20;
  // Max traces of all processes: each keeps a descriptor open. A process has one trace per slot, and one for
  // its connections.
  static constexpr size_t kMaxTraces = 64;
  static constexpr Duration kQuietTime = std::chrono::minutes(1);  // how long an unremarkable trace is kept

  struct Kept {
    uint64_t number = 0;   // larger than those of all earlier traces
    uint64_t process = 0;  // the same for all slots of a process
    uint32_t slot = 0;     // or place_of() the trace of the process's connections
    pid_t pid = 0;
    uid_t uid = 0;
    std::string program;
    TimePoint ended{};
    bool in_order = false;    // the slot was given back
    bool is_notable = false;  // not `in_order`, or the trace has an error
    size_t bytes = 0;
    UniqueFd file{};  // TraceRings, read-only
  };

  // Copies the trace out of a slot's status page, before the page is closed. `in_order`: the process returned
  // the slot; false: it ended without doing so.
  void keep(const LeasedSlot& slot, bool in_order, TimePoint now);
  // Copies the trace of the connections of a client that has gone.
  void keep(const ConnectionTrace& trace, TimePoint now);
  // Returns the first trace with this or a higher number, or nullptr. First drops traces that have expired.
  const Kept* find(uint64_t from, TimePoint now);
  // Adds a trace and gives it the next number. new_process() returns a process number that no session has.
  void add(Kept kept);
  uint64_t new_process() { return kWithoutSession | ++unknown_processes_; }
  template <class Visit>
  void for_each_notable(Visit visit) const {
    for (const Kept& kept : kept_) {
      if (kept.is_notable) visit(kept);
    }
  }
  // Returns when the latest notable trace ended, if there is one.
  std::optional<TimePoint> last_notable() const;

 private:
  static constexpr uint64_t kWithoutSession = uint64_t{1} << 63;

  void keep_copy(Kept kept, int file, size_t offset);
  size_t processes() const;
  size_t bytes() const;
  void forget_quiet(TimePoint now);
  void forget_one();

  std::list<Kept> kept_;  // the oldest first
  uint64_t next_ = 1;
  uint64_t unknown_processes_ = 0;
};

}  // namespace verbena::agent
