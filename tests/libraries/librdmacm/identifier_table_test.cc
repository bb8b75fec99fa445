// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {
namespace {

TEST(IdentifierTable, BeginsAgainWithNumbersThatAreFree) {
  constexpr uint32_t kLast = protocol::kCmAgentsNumber - 1;
  IdentifierTable identifiers(kLast - 1);
  const auto first = Channel::open(1), third = Channel::open(3);
  ASSERT_TRUE(first && third);
  identifiers.add(*first);
  identifiers.add(*third);
  EXPECT_EQ(identifiers.draw_number(), kLast);
  EXPECT_EQ(identifiers.draw_number(), 2u);
  EXPECT_EQ(identifiers.draw_number(), 4u);
  identifiers.remove(**first);
  EXPECT_FALSE(identifiers.find(first->get()));
}

}  // namespace
}  // namespace verbena::rdmacm
