// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/output.h"

#include <cerrno>
#include <cstdio>

#include <gtest/gtest.h>

namespace verbena::rdma_core {
namespace {

std::string printed(Output& output) {
  testing::internal::CaptureStdout();
  output.text("%d devices\n", 2);
  output.object()["devices"] = 2;
  output.finish();
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(OutputTest, IsTextForPeople) {
  Output output(false);
  EXPECT_EQ(printed(output), "2 devices\n");
}

TEST(OutputTest, IsOneObjectAndNothingElseForPrograms) {
  Output output(true);
  EXPECT_EQ(nlohmann::json::parse(printed(output)), (nlohmann::json{{"devices", 2}}));
}

TEST(OutputTest, NamesThatAreNoTextDoNotSpoilTheObject) {
  Output output(true);
  output.object()["name"] = "\xff\xfe";
  testing::internal::CaptureStdout();
  output.finish();
  std::fflush(stdout);
  EXPECT_TRUE(nlohmann::json::accept(testing::internal::GetCapturedStdout()));
}

TEST(Complaint, HasTheSentenceThenTheReasonThenTheRemedy) {
  testing::internal::CaptureStderr();
  complain("It failed");
  complain("It failed", "do this");
  complain_of(EINVAL, "It failed", "do that");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "It failed\nIt failed (do this)\nIt failed: Invalid argument (do that)\n");
}

}  // namespace
}  // namespace verbena::rdma_core
