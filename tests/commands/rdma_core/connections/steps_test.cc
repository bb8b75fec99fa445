// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/cmtime/steps.h"

#include <gtest/gtest.h>

namespace verbena::rdma_core {
namespace {

using std::chrono::microseconds;

Span span_of(int from, int to) {
  const TimePoint zero;
  return {zero + microseconds(from), zero + microseconds(to)};
}

constexpr auto kConnect = static_cast<size_t>(ConnectStep::kConnect);

TEST(StepTimes, HaveTheSlowestAndTheFastestConnection) {
  Spans whole;
  std::vector<Spans> connections(2);
  whole[kConnect] = span_of(0, 5000);
  connections[0][kConnect] = span_of(0, 1000);
  connections[1][kConnect] = span_of(1000, 5000);
  const StepTimes times = evaluate(whole, connections, true)[kConnect];
  EXPECT_DOUBLE_EQ(times.total, 5000);
  EXPECT_DOUBLE_EQ(times.longest, 4000);
  EXPECT_DOUBLE_EQ(times.shortest, 1000);
  EXPECT_DOUBLE_EQ(times.each, 2500);
}

TEST(StepTimes, LeaveOutConnectionsThatDidNotComeThrough) {
  Spans whole;
  std::vector<Spans> connections(2);
  whole[kConnect] = span_of(0, 5000);
  connections[0][kConnect].begun = TimePoint();
  connections[1][kConnect] = span_of(1000, 3000);
  const StepTimes times = evaluate(whole, connections, true)[kConnect];
  EXPECT_DOUBLE_EQ(times.longest, 2000);
  EXPECT_DOUBLE_EQ(times.shortest, 2000);
}

TEST(StepTimes, HaveNoBindingWithoutASource) {
  EXPECT_EQ(evaluate({}, {}, true).size(), kConnectSteps);
  const auto steps = evaluate({}, {}, false);
  ASSERT_EQ(steps.size(), kConnectSteps - 1);
  EXPECT_STREQ(steps[1].name, "resolve addr");
}

TEST(StepTimes, AreATableInTheOriginalsColumns) {
  testing::internal::CaptureStdout();
  Output output(false);
  report({{"connect", 12345.6, 2000, 15, 123.456}}, output);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "step              total ms     max ms     min us  us / conn\n"
            "connect      :       12.35       2.00      15.00     123.46\n");
}

TEST(StepTimes, OfNobodyHaveNoExtremesInJson) {
  Output output(true);
  report(evaluate({}, {}, false), output);
  EXPECT_FALSE(output.object()["steps"][0].contains("min_usec"));
  EXPECT_EQ(output.object()["steps"].size(), kConnectSteps - 1);
}

}  // namespace
}  // namespace verbena::rdma_core
