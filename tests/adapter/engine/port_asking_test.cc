// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/port_asking.h"

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

// In how many of so many polls ports are asked that bring nothing.
int asked_in(PortAsking& asking, int polls) {
  int asked = 0;
  for (int i = 0; i < polls; ++i) asked += asking.asks() ? 1 : 0;
  return asked;
}

TEST(PortAsking, PortsAreAskedEachTimeWhileNothingComesByMemory) {
  PortAsking asking;
  EXPECT_EQ(asked_in(asking, 1000), 1000);
}

TEST(PortAsking, PortsAreAskedNowAndThenWhilePacketsComeByMemory) {
  PortAsking asking;
  asking.memory_brought(1);
  const int asked = asked_in(asking, 4000);
  EXPECT_GT(asked, 10);
  EXPECT_LT(asked, 100);
}

TEST(PortAsking, PortsThatBringSomethingAreAskedEachTime) {
  PortAsking asking;
  asking.memory_brought(1);
  asking.ports_brought(1);
  EXPECT_EQ(asked_in(asking, 1000), 1000);
}

TEST(PortAsking, MemoryThatIsQuietForLongIsForgotten) {
  PortAsking asking;
  asking.memory_brought(1);
  asked_in(asking, 10'000);
  EXPECT_EQ(asked_in(asking, 1000), 1000);
}

}  // namespace
}  // namespace verbena::engine
