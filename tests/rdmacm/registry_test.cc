// SPDX-License-Identifier: Apache-2.0
#include "rdmacm/registry.h"

#include <gtest/gtest.h>

namespace verbena::rdmacm {
namespace {

TEST(Registry, BeginsAgainWithNumbersThatAreFree) {
  constexpr uint32_t kLast = protocol::kCmAgentsNumber - 1;
  Registry registry(kLast - 1);
  const auto first = Channel::open(1), third = Channel::open(3);
  ASSERT_TRUE(first && third);
  registry.add(*first);
  registry.add(*third);
  EXPECT_EQ(registry.draw_number(), kLast);
  EXPECT_EQ(registry.draw_number(), 2u);
  EXPECT_EQ(registry.draw_number(), 4u);
  registry.remove(**first);
  EXPECT_FALSE(registry.find(first->get()));
}

}  // namespace
}  // namespace verbena::rdmacm
