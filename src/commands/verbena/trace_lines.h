// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/time.h"
#include "control/client/trace_client.h"
#include "observe/trace/reader.h"

namespace verbena::commands {

// Selects events.
struct TraceChoice {
  std::optional<uint32_t> qpn{};
  std::optional<Duration> since{};  // how far back from the reference time
  std::optional<size_t> last{};     // count of the latest events among those
};
// Returns the selected events. `events` are in the order of time. `reference` is the current time, or the end
// of the process.
std::vector<trace::Event> chosen(std::vector<trace::Event> events, const TraceChoice& choice,
                                 TimePoint reference);

// The format of events, one line each.
struct TraceStyle {
  bool json = false;
  bool wall_clock = false;
  TimePoint reference{};     // zero of the displayed times
  Duration to_wall_clock{};  // offset from the monotonic clock
};
std::string line_of(const trace::Event& event, pid_t pid, const TraceStyle& style);

// Format the list of traces that `verbena trace` without a PID prints. `now` is a time of the monotonic
// clock.
std::string traces_as_text(const std::vector<control::TraceSource>& sources, TimePoint now);
std::string traces_as_json(const std::vector<control::TraceSource>& sources, TimePoint now);

}  // namespace verbena::commands
