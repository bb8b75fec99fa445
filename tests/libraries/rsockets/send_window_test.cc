// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "libraries/rsockets/flow_control.h"

namespace verbena::rsockets {
namespace {

constexpr uint32_t kRing = 8192;

TEST(RsocketSendWindow, NothingMayBeSentBeforeCreditsAndBuffersAreThere) {
  SendWindow window(4, kRing);
  EXPECT_FALSE(window.may_send());
  window.set_limit(1);
  EXPECT_FALSE(window.may_send());
  ASSERT_TRUE(window.grant({1000, 1, 100}));
  EXPECT_TRUE(window.may_send());
}

TEST(RsocketSendWindow, FillsOneBufferBeforeTheNext) {
  SendWindow window(4, kRing);
  window.set_limit(10);
  ASSERT_TRUE(window.grant({1000, 1, 100}));
  ASSERT_TRUE(window.grant({2000, 2, 50}));
  EXPECT_EQ(window.take(70), (BufferAddress{1000, 1, 70}));
  EXPECT_EQ(window.take(70), (BufferAddress{1070, 1, 30}));
  EXPECT_TRUE(window.may_send());
  EXPECT_EQ(window.take(70), (BufferAddress{2000, 2, 50}));
  EXPECT_FALSE(window.may_send());
}

TEST(RsocketSendWindow, EveryMessageTakesACredit) {
  SendWindow window(10, kRing);
  window.set_limit(2);
  ASSERT_TRUE(window.grant({1000, 1, 100}));
  window.take(1);
  window.take_credit();
  EXPECT_FALSE(window.has_credit());
  EXPECT_FALSE(window.may_send());
  window.set_limit(3);
  EXPECT_TRUE(window.may_send());
}

TEST(RsocketSendWindow, CreditsWrapAround) {
  SendWindow window(10, kRing);
  ASSERT_TRUE(window.grant({0, 1, 100000}));
  for (uint32_t sent = 0; sent < 70000; ++sent) {
    window.set_limit(static_cast<uint16_t>(sent + 1));
    ASSERT_TRUE(window.may_send()) << sent;
    window.take(1);
    ASSERT_FALSE(window.may_send()) << sent;
  }
}

TEST(RsocketSendWindow, PlacesInTheSendQueueComeBackWithCompletions) {
  SendWindow window(2, kRing);
  window.set_limit(10);
  ASSERT_TRUE(window.grant({1000, 1, 100}));
  window.post(10);
  window.post(0);
  EXPECT_FALSE(window.has_room());
  EXPECT_FALSE(window.all_done());
  window.complete(10);
  EXPECT_TRUE(window.may_send());
  window.complete(0);
  EXPECT_TRUE(window.all_done());
  EXPECT_EQ(window.free_ring_bytes(), kRing);
}

TEST(RsocketSendWindow, NoTransferBeginsInAnAllButFullRing) {
  SendWindow window(10, kRing);
  window.set_limit(10);
  ASSERT_TRUE(window.grant({1000, 1, 100}));
  window.post(kRing - kSendLowWater);
  EXPECT_TRUE(window.may_send());
  window.post(1);
  EXPECT_FALSE(window.may_send());
}

TEST(RsocketSendWindow, PeerCannotGrantMoreThanItsTableHolds) {
  SendWindow window(10, kRing);
  window.set_limit(10);
  EXPECT_TRUE(window.grant({1000, 1, 100}));
  EXPECT_TRUE(window.grant({2000, 1, 100}));
  EXPECT_FALSE(window.grant({3000, 1, 100}));
  window.take(1);
  EXPECT_TRUE(window.grant({3000, 1, 100}));
}

}  // namespace
}  // namespace verbena::rsockets
