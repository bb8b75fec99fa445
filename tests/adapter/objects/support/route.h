// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <vector>

#include <sys/types.h>

namespace verbena::adapter::testing {

// The route between QPs of this host: shared memory or the wire (docs/one-host.md).
enum class Route : uint8_t { kLocal, kWire };
constexpr const char* name_of(Route route) {
  return route == Route::kLocal ? "Local" : "Wire";
}
inline void PrintTo(Route route, std::ostream* out) {
  *out << name_of(route);
}

// The route that the environment selects, for tests that do not choose one.
Route usual_route();
// Selects the route for the next device opened when none is open, and for helpers.
void use_route(Route route);

// The number of a process's connected QPs on each route, as in `verbena status`. Nullopt if the agent does
// not answer or does not know the process.
struct RouteCount {
  size_t local = 0;
  size_t wire = 0;
};
std::optional<RouteCount> count_routes(pid_t process);
// Whether, within ten seconds, the process has `qps` connected QPs, all on this route.
bool all_take(Route route, pid_t process, size_t qps);

// This process's resources for channels. Sockets for sending to other hosts do not count: they are kept for
// the next peer.
struct Holdings {
  size_t descriptors = 0;
  size_t channels = 0;  // mapped channels
  size_t boards = 0;    // mapped export tables, with its own
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
inline void PrintTo(const Holdings& held, std::ostream* out) {
  *out << held.descriptors << " descriptors, " << held.channels << " channels, " << held.boards << " boards";
}
Holdings own_holdings();

}  // namespace verbena::adapter::testing
