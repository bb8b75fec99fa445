// SPDX-License-Identifier: Apache-2.0
#include <random>

#include <gtest/gtest.h>

#include "commands/rdma_core/verbs/pingpong/exchange.h"

namespace verbena::rdma_core {
namespace {

const std::string kLine("001f:00abcd:ffffff:00000000000000000000ffffc0000202\0", 52);
const std::string kXrcLine("001f:00abcd:00abce:000007:068001:fe80000000000000000000000000000a\0", 66);

TEST(AddressLine, IsThatOfThePingpongs) {
  Address address{.lid = 0x1f, .qpn = 0xabcd, .psn = 0xffffff};
  address.gid.raw[10] = address.gid.raw[11] = 0xff;
  address.gid.raw[12] = 192;
  address.gid.raw[14] = address.gid.raw[15] = 2;
  EXPECT_EQ(address.encoded(), kLine);
  EXPECT_EQ(Address::kLength, 52U);
}

TEST(AddressLine, IsReadBack) {
  const auto address = Address::decode(kLine);
  ASSERT_TRUE(address);
  EXPECT_EQ(address->lid, 0x1fU);
  EXPECT_EQ(address->qpn, 0xabcdU);
  EXPECT_EQ(address->psn, 0xffffffU);
  EXPECT_EQ(address->gid.raw[12], 192);
  EXPECT_EQ(address->encoded(), kLine);
}

TEST(AddressLine, OfXrcHasBothQueuePairsAndTheSharedQueue) {
  const auto address = XrcAddress::decode(kXrcLine);
  ASSERT_TRUE(address);
  EXPECT_EQ(address->receiving_qpn, 0xabcdU);
  EXPECT_EQ(address->sending_qpn, 0xabceU);
  EXPECT_EQ(address->psn, 7U);
  EXPECT_EQ(address->srqn, 0x68001U);
  EXPECT_EQ(address->gid.raw[15], 10);
  EXPECT_EQ(address->encoded(), kXrcLine);
}

TEST(AddressLine, OfAnotherLengthIsNone) {
  for (size_t length = 0; length < kLine.size(); ++length) {
    EXPECT_FALSE(Address::decode(kLine.substr(0, length))) << length;
  }
  EXPECT_FALSE(Address::decode(kLine + "0"));
  EXPECT_FALSE(Address::decode(kXrcLine));
  EXPECT_FALSE(XrcAddress::decode(kLine));
}

TEST(AddressLine, WithAWrongByteAnywhereIsNone) {
  for (const std::string& line : {kLine, kXrcLine}) {
    for (size_t at = 0; at < line.size(); ++at) {
      for (const char wrong : {'g', '-', '+', ' ', '\n', '\xff'}) {
        std::string other = line;
        other[at] = wrong;
        EXPECT_FALSE(Address::decode(other) || XrcAddress::decode(other)) << at << " " << wrong;
      }
    }
  }
}

TEST(AddressLine, OfAnyBytesIsReadWithoutHarm) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string line(random() % 2 ? Address::kLength : XrcAddress::kLength, '\0');
    for (char& each : line) each = "0123456789abcdefABCDEFx:\0 "[random() % 27];
    const auto address = Address::decode(line);
    const auto xrc_address = XrcAddress::decode(line);
    EXPECT_LE(address ? address->qpn : 0, 0xffffffU);
    EXPECT_LE(xrc_address ? xrc_address->srqn : 0, 0xffffffU);
  }
}

}  // namespace
}  // namespace verbena::rdma_core
