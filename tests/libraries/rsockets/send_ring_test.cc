// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "libraries/rsockets/flow_control.h"

namespace verbena::rsockets {
namespace {

TEST(RsocketSendRing, PlacesFollowEachOther) {
  SendRing ring(100);
  EXPECT_EQ(ring.take(60)[0].offset, 0u);
  const auto place = ring.take(40);
  EXPECT_EQ(place[0].offset, 60u);
  EXPECT_EQ(place[1].length, 0u);
  EXPECT_EQ(ring.take(1)[0].offset, 0u);
}

TEST(RsocketSendRing, WrappingPlaceIsInTwoPieces) {
  SendRing ring(100);
  ring.take(70);
  const auto place = ring.take(50);
  EXPECT_EQ(place[0].offset, 70u);
  EXPECT_EQ(place[0].length, 30u);
  EXPECT_EQ(place[1].offset, 0u);
  EXPECT_EQ(place[1].length, 20u);
  EXPECT_EQ(ring.take(5)[0].offset, 20u);
}

}  // namespace
}  // namespace verbena::rsockets
