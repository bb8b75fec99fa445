// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/psn.h"

#include <gtest/gtest.h>

#include "wire/roce/qpn.h"

namespace verbena::roce {
namespace {

TEST(Psn, WrapsAt24Bits) {
  EXPECT_EQ(Psn(0xffffff) + 1, Psn(0));
  EXPECT_EQ(Psn(0) - 1u, Psn(0xffffff));
  EXPECT_EQ(Psn(0x1000005), Psn(5));
  Psn psn(0xffffff);
  EXPECT_EQ((++psn).value(), 0u);
}

TEST(Psn, OrderIsSerial) {
  EXPECT_TRUE(Psn(0xffffff).is_before(Psn(0)));
  EXPECT_TRUE(Psn(0).is_after(Psn(0xffffff)));
  EXPECT_FALSE(Psn(7).is_before(Psn(7)));
  EXPECT_FALSE(Psn(7).is_after(Psn(7)));
  EXPECT_EQ(Psn(2) - Psn(0xfffffe), 4);
  EXPECT_EQ(Psn(0xfffffe) - Psn(2), -4);
  EXPECT_EQ(Psn(0x7fffff) - Psn(0), 0x7fffff);
  EXPECT_EQ(Psn(0x800000) - Psn(0), -0x800000);
}

TEST(Qpn, SplitsIntoSlotAndIndex) {
  const Qpn qpn = Qpn::in_slot(3, 5);
  EXPECT_EQ(qpn.slot(), 3u);
  EXPECT_EQ(qpn.index(), 5u);
  EXPECT_EQ(Qpn(0xffffff).slot(), Qpn::kSlots - 1);
  EXPECT_EQ(Qpn(0xffffff).index(), Qpn::kPerSlot - 1);
  EXPECT_EQ(Qpn(1).slot(), 0u) << "QP1 is the agent's";
}

}  // namespace
}  // namespace verbena::roce
