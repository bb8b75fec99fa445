// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "libraries/rsockets/flow_control.h"

namespace verbena::rsockets {
namespace {

TEST(RsocketReceiveWindow, SecondHalfIsOwedFromTheBeginning) {
  ReceiveWindow window(16, 100);
  ASSERT_TRUE(window.owes_buffer());
  EXPECT_EQ(window.grant_buffer(), 100u);
  EXPECT_FALSE(window.owes_buffer());
}

TEST(RsocketReceiveWindow, HalfIsGrantedAgainOnceAllOfItIsRead) {
  ReceiveWindow window(16, 100);
  window.grant_buffer();
  ASSERT_TRUE(window.arrive(100));
  window.consume(99);
  EXPECT_FALSE(window.owes_buffer());
  window.consume(1);
  ASSERT_TRUE(window.owes_buffer());
  EXPECT_EQ(window.grant_buffer(), 0u);
}

TEST(RsocketReceiveWindow, BytesInTheRingComeInPieces) {
  ReceiveWindow window(16, 100);
  window.grant_buffer();
  ASSERT_TRUE(window.arrive(100));
  window.consume(90);
  ASSERT_TRUE(window.arrive(60));
  ASSERT_TRUE(window.arrive(40));
  window.consume(60);  // 150 read, 50 left in the ring
  window.consume(40);
  EXPECT_EQ(window.available(), 10u);
  EXPECT_EQ(window.peek(100).offset, 190u);
  EXPECT_EQ(window.peek(100).length, 10u);
  window.grant_buffer();
  ASSERT_TRUE(window.arrive(20));
  EXPECT_EQ(window.peek(100).length, 10u);
  EXPECT_EQ(window.peek(100, 10).offset, 0u);
  EXPECT_EQ(window.peek(100, 10).length, 20u);
  EXPECT_EQ(window.peek(100, 30).length, 0u);
}

TEST(RsocketReceiveWindow, CreditsAreOwedWhenHalfOfTheMessagesAreRead) {
  ReceiveWindow window(16, 1000);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(window.arrive(2));
  window.consume(15);
  EXPECT_FALSE(window.owes_credits()) << "the eighth is only half read";
  window.consume(1);
  ASSERT_TRUE(window.owes_credits());
  EXPECT_EQ(window.grant_credits(), 8 + 16);
  EXPECT_FALSE(window.owes_credits());
}

TEST(RsocketReceiveWindow, PeerMayNotWriteBeyondWhatItWasGranted) {
  ReceiveWindow window(16, 100);
  EXPECT_FALSE(window.arrive(101));
  EXPECT_TRUE(window.arrive(100));
  EXPECT_FALSE(window.arrive(1));
  window.grant_buffer();
  EXPECT_TRUE(window.arrive(1));
}

TEST(RsocketReceiveWindow, PeerMayNotSendMoreMessagesThanItHasCredits) {
  ReceiveWindow window(4, 100);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(window.arrive(1));
  EXPECT_FALSE(window.arrive(1));
  window.consume(1);
  EXPECT_TRUE(window.arrive(1));
}

TEST(RsocketReceiveWindow, MessageOfNothingIsAFault) {
  ReceiveWindow window(4, 100);
  EXPECT_FALSE(window.arrive(0));
}

}  // namespace
}  // namespace verbena::rsockets
