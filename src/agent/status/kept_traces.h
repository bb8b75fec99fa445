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

// What is left of the traces of processes that have ended: copies, which nobody can change. Of so many
// processes and so many bytes at most. What is too much goes first from the user who has most here, of that
// what ended well, of that the oldest: one user's programs do not drive out another's. What ended well, with
// no error at all, is forgotten after a minute.
class KeptTraces {
 public:
  static constexpr size_t kMaxProcesses = 16;
  static constexpr size_t kMaxBytes = 16 << 20;
  // Each takes a descriptor. A process has one for each slot, and one for its connections.
  static constexpr size_t kMaxTraces = 64;
  static constexpr Duration kQuietTime = std::chrono::minutes(1);

  struct Kept {
    uint64_t number = 0;   // larger than those of all before it
    uint64_t process = 0;  // slots of one process have the same
    uint32_t slot = 0;     // or place_of() the trace of its connections
    pid_t pid = 0;
    uid_t uid = 0;
    std::string program;
    TimePoint ended{};
    bool in_order = false;    // the slot was given back
    bool is_notable = false;  // it was not, or the trace tells of an error
    size_t bytes = 0;
    UniqueFd file{};  // TraceRings, for reading
  };

  // The slot's process has ended, or has given the slot back: before the page goes.
  void keep(const LeasedSlot& slot, bool in_order, TimePoint now);
  // The same of the connections of a client that has gone.
  void keep(const ConnectionTrace& trace, TimePoint now);
  // The first from this number on; nullptr: none. Forgets first what is to be forgotten by now.
  const Kept* find(uint64_t from, TimePoint now);
  // One more, whose number is still to be given; and a process that no session is.
  void add(Kept kept);
  uint64_t new_process() { return kWithoutSession | ++unknown_processes_; }
  template <class Visit>
  void for_each_notable(Visit visit) const {
    for (const Kept& kept : kept_) {
      if (kept.is_notable) visit(kept);
    }
  }
  // When the last notable one ended; nothing: there is none.
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
