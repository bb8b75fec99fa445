// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <vector>

#include <sys/types.h>

namespace verbena::adapter::testing {

// How the QPs of this host reach each other (docs/one-host.md).
enum class Route : uint8_t { kLocal, kWire };
constexpr const char* name_of(Route route) {
  return route == Route::kLocal ? "Local" : "Wire";
}
inline void PrintTo(Route route, std::ostream* out) {
  *out << name_of(route);
}

// What our environment says, by which the tests of this program go that do not say another.
Route usual_route();
// From now on: for the next device that is opened here when none is open, and for helpers.
void use_route(Route route);

// Of the QPs of a process that are connected, how many take each route, as `verbena status` says it. Nothing:
// the agent does not answer, or does not know the process.
struct RouteCount {
  size_t local = 0;
  size_t wire = 0;
};
std::optional<RouteCount> count_routes(pid_t process);
// Whether all of the process's connected QPs come to take the route, and there are so many; within ten
// seconds.
bool all_take(Route route, pid_t process, size_t qps);

// What this process has that channels are made of. (Sockets that packets leave the host by are kept for the
// next peer, so they do not count.)
struct Holdings {
  size_t descriptors = 0;
  size_t channels = 0;  // mapped
  size_t boards = 0;    // mapped, its own included
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
inline void PrintTo(const Holdings& held, std::ostream* out) {
  *out << held.descriptors << " descriptors, " << held.channels << " channels, " << held.boards << " boards";
}
Holdings own_holdings();

}  // namespace verbena::adapter::testing
