// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/channel_peers.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ChannelPeersTest : public ::testing::Test {
 protected:
  // Returns the slots that must be told of some end.
  std::vector<uint32_t> hearers() {
    std::vector<uint32_t> slots;
    peers.for_each_that_must_hear([&](uint32_t slot) { slots.push_back(slot); });
    return slots;
  }
  // Returns the ends that the slot is told of, if it takes at most `most`.
  std::vector<uint32_t> tell(uint32_t slot, size_t most = SIZE_MAX) {
    std::vector<uint32_t> ends;
    const auto take = [&](uint32_t ended) {
      if (ends.size() == most) return false;
      ends.push_back(ended);
      return true;
    };
    while (peers.must_hear(slot) && peers.tell_one(slot, take)) {
    }
    return ends;
  }
  ChannelPeers peers;
};

TEST_F(ChannelPeersTest, TellsBothEndsOfAChannel) {
  peers.join(1, 2);
  peers.join(3, 1);
  peers.end(1);
  EXPECT_THAT(hearers(), ElementsAre(2, 3));
  EXPECT_THAT(tell(2), ElementsAre(1));
  EXPECT_THAT(tell(3), ElementsAre(1));
  EXPECT_THAT(hearers(), IsEmpty()) << "once";
  peers.end(1);
  EXPECT_THAT(hearers(), IsEmpty()) << "the next lease has no channels yet";
}

TEST_F(ChannelPeersTest, KeepsWhatASlotCouldNotBeTold) {
  for (const uint32_t slot : {5u, 6u, 1023u}) {
    peers.join(4, slot);
    peers.end(slot);
  }
  EXPECT_THAT(tell(4, 1), ElementsAre(5));
  EXPECT_THAT(tell(4, 0), IsEmpty());
  EXPECT_THAT(hearers(), ElementsAre(4));
  EXPECT_THAT(tell(4), ElementsAre(6, 1023));
}

TEST_F(ChannelPeersTest, TellsTheNextHolderOfASlotNothingOfTheFormerOnes) {
  peers.join(1, 2);
  peers.end(2);
  peers.end(1);
  EXPECT_THAT(tell(1), IsEmpty());
  peers.end(2);
  EXPECT_THAT(hearers(), IsEmpty());
}

TEST_F(ChannelPeersTest, TellsOfSlotsThatOthersReport) {
  peers.must_tell(7, 8);
  EXPECT_THAT(tell(7), ElementsAre(8));
}

// Another user's process would be taken for the one that had the slot before.
TEST_F(ChannelPeersTest, AwaitsTheAcknowledgementOfAllThatMustBeTold) {
  peers.join(1, 2);
  peers.join(1, 3);
  peers.end(1);
  EXPECT_TRUE(peers.is_awaited(1));
  EXPECT_THAT(tell(2), ElementsAre(1));
  EXPECT_THAT(tell(3), ElementsAre(1));
  peers.heard(2, 1);
  EXPECT_TRUE(peers.is_awaited(1)) << "the third slot has been told, but may not have received that";
  EXPECT_FALSE(peers.awaits(2, 1));
  EXPECT_TRUE(peers.awaits(3, 1));
  peers.heard(3, 1);
  EXPECT_FALSE(peers.is_awaited(1));
  EXPECT_FALSE(peers.is_awaited(2));
}

TEST_F(ChannelPeersTest, AwaitsNothingOfASlotWhoseOwnLeaseHasEnded) {
  peers.join(1, 2);
  peers.join(1, 3);
  peers.end(1);
  tell(2);
  peers.end(2);
  EXPECT_TRUE(peers.is_awaited(1));
  peers.end(3);
  EXPECT_FALSE(peers.is_awaited(1));
}

TEST_F(ChannelPeersTest, TakeNoAcknowledgementOfWhatASlotWasNotTold) {
  peers.join(1, 2);
  peers.end(1);
  peers.heard(2, 1);
  EXPECT_TRUE(peers.is_awaited(1));
  EXPECT_THAT(tell(2), ElementsAre(1));
}

}  // namespace
}  // namespace verbena::agent
