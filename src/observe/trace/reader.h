// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "control/protocol/trace_ring.h"
#include "observe/trace/recorder.h"

namespace verbena::trace {

// One event as the traced process wrote it. Only the kind is verified; the numbers may be anything.
struct Event {
  TimePoint time;
  uint32_t qpn = 0;
  Kind kind = Kind::kNone;
  Recorder::Numbers numbers{};
};

// Returns whether the event reports a failure or an imminent failure, such as an ACK timeout.
bool is_trouble(const Event& event);

// Reads the trace rings of a process from a file. The process may be writing to the rings meanwhile. Uses
// pread() instead of a mapping, and no call that waits for the file's lock (control/model/agent_status.h
// explains why). Whatever the file contains, read() returns only events of known kinds, and at most as many
// as the rings can hold.
class Reader {
 public:
  // `offset`: position of the protocol::TraceRings in the file, in bytes. The caller owns the file and keeps
  // it open.
  Reader(int file, size_t offset) : file_(file), offset_(offset) {}

  // From now on, reads from this file instead. REQUIRES: the file has the same rings, in a later state
  void read_from(int file) { file_ = file; }

  // Returns whether the file has trace rings. Processes with older libraries have none.
  bool has_rings() const;

  // Returns the events since the last call, ordered by time. The first call returns all events in the rings.
  std::vector<Event> read();
  // Like read(), but returns only rare events: no requests and packets.
  std::vector<Event> read_rare();
  // Returns the number of events that the process recorded after the first read, but that no read returned:
  // they were overwritten before they could be read, or were invalid.
  uint64_t missed() const { return missed_; }

 private:
  struct Ring {
    size_t offset = 0;
    uint64_t taken = 0;
    bool is_begun = false;
  };

  bool read_at(void* to, size_t bytes, size_t offset) const;
  uint64_t written(const Ring& ring) const;
  void read_ring(Ring& ring, std::vector<Event>& events);
  size_t take(const Ring& ring, uint64_t first, uint64_t end, std::vector<Event>& events) const;

  int file_;
  const size_t offset_;
  Ring events_{offsetof(protocol::TraceRings, events)};
  Ring details_{offsetof(protocol::TraceRings, details)};
  uint64_t missed_ = 0;
};

}  // namespace verbena::trace
