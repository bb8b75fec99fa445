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
  // Returns the slots that must be told of the end.
  std::vector<uint32_t> end(uint32_t slot) {
    std::vector<uint32_t> told;
    peers.end(slot, [&](uint32_t peer) { told.push_back(peer); });
    return told;
  }
  // The ends that the slot is told of, if it takes `most`.
  std::vector<uint32_t> tell(uint32_t slot, size_t most = SIZE_MAX) {
    std::vector<uint32_t> ends;
    peers.tell(slot, [&](uint32_t ended) {
      if (ends.size() == most) return false;
      ends.push_back(ended);
      return true;
    });
    return ends;
  }
  ChannelPeers peers;
};

TEST_F(ChannelPeersTest, TellBothEndsOfAChannel) {
  peers.join(1, 2);
  peers.join(3, 1);
  EXPECT_THAT(end(1), ElementsAre(2, 3));
  EXPECT_THAT(tell(2), ElementsAre(1));
  EXPECT_THAT(tell(3), ElementsAre(1));
  EXPECT_THAT(tell(2), IsEmpty()) << "once";
  EXPECT_THAT(end(1), IsEmpty()) << "the next lease has no channels yet";
}

TEST_F(ChannelPeersTest, KeepWhatASlotCouldNotBeTold) {
  for (const uint32_t slot : {5u, 6u, 1023u}) {
    peers.join(4, slot);
    end(slot);
  }
  EXPECT_THAT(tell(4, 1), ElementsAre(5));
  EXPECT_THAT(tell(4, 0), IsEmpty());
  EXPECT_THAT(tell(4), ElementsAre(6, 1023));
}

TEST_F(ChannelPeersTest, TellTheNextHolderOfASlotNothingOfTheFormerOnes) {
  peers.join(1, 2);
  end(2);
  end(1);
  EXPECT_THAT(tell(1), IsEmpty());
  EXPECT_THAT(end(2), IsEmpty());
}

TEST_F(ChannelPeersTest, TellOfSlotsThatOthersReport) {
  peers.must_tell(7, 8);
  EXPECT_THAT(tell(7), ElementsAre(8));
}

}  // namespace
}  // namespace verbena::agent
