// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "agent/cm/gsi_port.h"

namespace verbena::agent {
namespace {

constexpr uint64_t kSecret = 0x8f14e45fceea167a;
using Message = std::array<std::byte, 256>;

Message message(uint32_t number) {
  Message result{};
  store_be(&result[20], number);
  return result;
}

TEST(OwnMessages, AreHeardOnceEach) {
  OwnMessages own(kSecret);
  EXPECT_FALSE(own.heard(message(1)));
  own.said(message(1));
  own.said(message(1));  // a repetition, because no answer came
  EXPECT_FALSE(own.heard(message(2)));
  EXPECT_TRUE(own.heard(message(1)));
  EXPECT_TRUE(own.heard(message(1)));
  EXPECT_FALSE(own.heard(message(1)));
}

TEST(OwnMessages, DifferInEveryBit) {
  OwnMessages own(kSecret);
  own.said(message(1));
  for (size_t at = 0; at < 256; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Message forged = message(1);
      forged[at] ^= std::byte(1 << bit);
      EXPECT_FALSE(own.heard(forged)) << at;
    }
  }
  EXPECT_TRUE(own.heard(message(1)));
}

// Many programs connect at the same moment. Messages to other hosts are in the table as well.
TEST(OwnMessages, FindRoomByTheThousand) {
  OwnMessages own(kSecret);
  for (uint32_t i = 0; i < 100000; ++i) own.said(message(i));
  uint32_t heard = 0;
  for (uint32_t i = 95000; i < 100000; ++i) heard += own.heard(message(i));
  EXPECT_GT(heard, 4995u);
}

}  // namespace
}  // namespace verbena::agent
