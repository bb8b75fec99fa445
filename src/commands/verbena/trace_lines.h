// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/time.h"
#include "control/client/command_client.h"
#include "observe/trace/reader.h"

namespace verbena::commands {

// The user's selection of events. An event has to match all members that are set.
struct TraceChoice {
  std::optional<uint32_t> qpn{};
  std::optional<Duration> since{};  // only events at most this long before the reference time
  std::optional<size_t> last{};     // only this many of the latest events that the other members select
};
// Returns the events that `choice` selects. `events` are in the order of time. `reference` is the time from
// which choice.since counts back: the current time, or the end of the process if it has ended. With
// `choice.qpn`, also returns events of the connection identifiers that the QP has had.
std::vector<trace::Event> chosen(std::vector<trace::Event> events, const TraceChoice& choice,
                                 TimePoint reference);

// The output format of events, one line for each.
struct TraceStyle {
  bool json = false;
  bool wall_clock = false;
  TimePoint reference{};     // displayed times are relative to this, unless wall_clock
  Duration to_wall_clock{};  // wall-clock time minus monotonic time
};
// Formats an event as one line, with a newline. Only JSON shows `pid`.
std::string line_of(const trace::Event& event, pid_t pid, const TraceStyle& style);

// Lists processes with traces, for `verbena trace` without a PID. Keeps no file, since there may be more
// traces than this process may have files open.
class TraceList {
 public:
  // Counts the events of one of the process's traces.
  void add(const control::TraceSource& source);
  // Format the list. `now` is a time of the monotonic clock.
  std::string as_text(TimePoint now) const;
  std::string as_json(TimePoint now) const;

 private:
  // A process with the traces of all its slots.
  struct Process {
    pid_t pid;
    uid_t uid;
    std::string program;
    std::optional<control::TraceSource::End> end;
    size_t events = 0;
    size_t troubles = 0;
  };
  std::vector<Process> processes_;
};

}  // namespace verbena::commands
