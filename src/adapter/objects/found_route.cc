// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/found_route.h"

#include <optional>

#include "adapter/transport/route.h"

namespace verbena::adapter {

namespace {

constinit thread_local std::optional<roce::Path> found;

}  // namespace

void set_found_route(const roce::Path& path) {
  found = path;
}

Duration neighbour_patience(const roce::Path& path) {
  if (found != path) return transport::kNeighbourPatience;
  found.reset();
  return Duration(0);
}

}  // namespace verbena::adapter
