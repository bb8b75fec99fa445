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

// Which events are wanted.
struct TraceChoice {
  std::optional<uint32_t> qpn{};
  std::optional<Duration> since{};  // before the reference time
  std::optional<size_t> last{};     // of those
};
// Of events in the order of time. `reference`: now, or when the process ended.
std::vector<trace::Event> chosen(std::vector<trace::Event> events, const TraceChoice& choice,
                                 TimePoint reference);

// How events are written, one line each.
struct TraceStyle {
  bool json = false;
  bool wall_clock = false;
  TimePoint reference{};     // times are told from there
  Duration to_wall_clock{};  // from the monotonic one
};
std::string line_of(const trace::Event& event, pid_t pid, const TraceStyle& style);

// What `verbena trace` says without a PID: whose traces there are. `now`: of the monotonic clock.
std::string traces_as_text(const std::vector<control::TraceSource>& sources, TimePoint now);
std::string traces_as_json(const std::vector<control::TraceSource>& sources, TimePoint now);

}  // namespace verbena::commands
