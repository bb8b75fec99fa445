// SPDX-License-Identifier: Apache-2.0
// This program's tests run over the shared-memory route, and a part of them again over the wire with
// VERBENA_LOCAL=off. These tests check that they do.
#include "adapter/objects/support/route.h"

#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/helper.h"

namespace verbena::adapter::testing {
namespace {

const HelperBody peer("route-peer", [](Line& line) {
  Endpoint endpoint;
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
  line.tell(true);
  line.await_end();
});

TEST(Route, WithinAProcessIsWhatTheEnvironmentSays) {
  const Pair pair;
  EXPECT_TRUE(all_take(usual_route(), ::getpid(), 2)) << name_of(usual_route());
}

TEST(Route, BetweenProcessesIsWhatTheEnvironmentSays) {
  Helper helper = Helper::start("route-peer");
  Endpoint endpoint;
  helper.line().tell(endpoint.address());
  endpoint.connect(helper.line().hear<Address>());
  helper.line().hear<bool>();
  EXPECT_TRUE(all_take(usual_route(), ::getpid(), 1)) << name_of(usual_route());
  EXPECT_TRUE(all_take(usual_route(), helper.pid(), 1)) << name_of(usual_route());
}

}  // namespace
}  // namespace verbena::adapter::testing
