// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/devinfo/sheet.h"

#include <cstdio>

#include <gtest/gtest.h>

namespace verbena::rdma_core {
namespace {

class SheetTest : public testing::Test {
 protected:
  SheetTest() { testing::internal::CaptureStdout(); }
  std::string printed() {
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }

  Output output_{false};
  Sheet sheet_{output_};
};

TEST_F(SheetTest, ValuesStandInOneColumn) {
  sheet_.row(1, "max_qp", 40, "5");
  sheet_.row(1, "max_total_mcast_qp_attach", 40, "6");
  EXPECT_EQ(printed(), "\tmax_qp:\t\t\t\t5\n\tmax_total_mcast_qp_attach:\t6\n");
}

TEST_F(SheetTest, NamesThatReachTheColumnHaveATabBehindThem) {
  sheet_.row(0, "hca_id", 0, "rxe0");
  EXPECT_EQ(printed(), "hca_id:\trxe0\n");
}

TEST_F(SheetTest, FlagsAreALineEachAndUnknownOnesANumber) {
  constexpr Flag kFlags[] = {{1, "ONE"}, {2, "TWO"}, {4, "FOUR"}};
  EXPECT_EQ(sheet_.flags(0x105, kFlags).dump(), R"(["ONE","FOUR","0x100"])");
  EXPECT_EQ(printed(), "\t\t\t\t\tONE\n\t\t\t\t\tFOUR\n\t\t\t\t\tUnknown flags: 0x100\n");
}

}  // namespace
}  // namespace verbena::rdma_core
