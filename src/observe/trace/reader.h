// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "control/protocol/trace_ring.h"
#include "observe/trace/recorder.h"

namespace verbena::trace {

// One event, as a process has written it: nobody checks that it is true.
struct Event {
  TimePoint time;
  uint32_t qpn = 0;
  Kind kind = Kind::kNone;
  Recorder::Numbers numbers{};
};

// Whether it tells of something that has gone wrong, or is about to.
bool is_trouble(const Event& event);

// Reads the rings of a process that writes them meanwhile, or may; or a copy of them. Reads the file rather
// than map it, and calls nothing that waits for the file's lock (control/model/status_reader.h says why).
// Whatever lies there, what comes out are events of known kinds, at most as many as the rings have room for.
class Reader {
 public:
  // `offset`: where in the file the TraceRings begin. The file is the caller's, and stays open.
  Reader(int file, size_t offset) : file_(file), offset_(offset) {}

  // Whether there are rings: an older library writes none.
  bool has_rings() const;

  // What is new since the last call, by time.
  std::vector<Event> read();
  // The same without the details.
  std::vector<Event> read_rare();
  // How many events were gone before they could be read, since the reader began to look; not those that were
  // gone at its first look.
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

  const int file_;
  const size_t offset_;
  Ring events_{offsetof(protocol::TraceRings, events)};
  Ring details_{offsetof(protocol::TraceRings, details)};
  uint64_t missed_ = 0;
};

}  // namespace verbena::trace
