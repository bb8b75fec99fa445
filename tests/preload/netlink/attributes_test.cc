// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "preload/netlink/message.h"
#include "preload/netlink/messages.h"

namespace verbena::rdma_netlink {
namespace {

TEST(Attributes, HaveLengthTypeValueAndPadding) {
  Attributes attributes;
  attributes.put_u8(3, 0x5a).put_u32(4, 0x01020304);
  const uint8_t wanted[] = {5, 0, 3, 0, 0x5a, 0, 0, 0, 8, 0, 4, 0, 4, 3, 2, 1};
  ASSERT_EQ(attributes.bytes().size(), sizeof wanted);
  EXPECT_EQ(std::memcmp(attributes.bytes().data(), wanted, sizeof wanted), 0);
}

TEST(Attributes, TextHasTheZeroThatEndsIt) {
  Attributes attributes;
  attributes.put_text(2, "rxe0");
  const auto seen = read_attributes(attributes.bytes());
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].value.size(), 5U);
  EXPECT_EQ(seen[0].text(), "rxe0");
}

TEST(Attributes, NestsMayBeEmpty) {
  Attributes inner, outer;
  outer.put_nest(9, inner).put_nest(10, inner.put_u64(1, 1ull << 40));
  const auto seen = read_attributes(outer.bytes());
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen[0].value.empty());
  EXPECT_EQ(read_attributes(seen[1].value)[0].number<uint64_t>(), 1ull << 40);
}

}  // namespace
}  // namespace verbena::rdma_netlink
