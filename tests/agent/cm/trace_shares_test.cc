// SPDX-License-Identifier: Apache-2.0
// Limits on the memory for traces of one user's connections.
#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "agent/cm/connection_trace.h"
#include "control/protocol/trace_ring.h"

namespace verbena::agent {
namespace {

constexpr uid_t kOwn = 500;
constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;

class ConnectionTraceShares : public ::testing::Test {
 protected:
  std::unique_ptr<ConnectionTrace> trace(uid_t user) {
    return std::make_unique<ConnectionTrace>(
        traces_, TracedProcess{.process = 1, .pid = 1, .uid = user, .program = "test"});
  }
  static void write(ConnectionTrace& trace, size_t events) {
    const CmIdentifier id;
    for (size_t i = 0; i < events; ++i) trace.called(id, protocol::TraceCall::kConnect, 0, nullptr);
  }

  ConnectionTraces traces_{kOwn, {}};
};

TEST_F(ConnectionTraceShares, AFewEventsCostAPage) {
  const auto one = trace(kUser);
  EXPECT_EQ(traces_.pages_of(kUser), 0u);
  write(*one, 50);
  EXPECT_EQ(traces_.pages_of(kUser), 1u);
}

TEST_F(ConnectionTraceShares, ARingIsNeverLargerThanItIs) {
  const auto one = trace(kUser);
  write(*one, 3 * protocol::kTraceEntries);
  EXPECT_LE(traces_.pages_of(kUser) * ConnectionTraces::kPageBytes,
            sizeof(protocol::TraceRing) + 2 * ConnectionTraces::kPageBytes);
}

TEST_F(ConnectionTraceShares, OneUserLeavesOthersTheirs) {
  std::vector<std::unique_ptr<ConnectionTrace>> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(trace(kUser));
    write(*many.back(), protocol::kTraceEntries);
  }
  EXPECT_LT(traces_.pages_of(kUser), ConnectionTraces::kPages.all * 2 / 3);
  const auto others = trace(kOther);
  write(*others, 50);
  EXPECT_EQ(traces_.pages_of(kOther), 1u);
  many.clear();
  EXPECT_EQ(traces_.pages_of(kUser), 0u);
}

TEST_F(ConnectionTraceShares, AUserFindsItsOwnWithoutOthers) {
  const auto first = trace(kOther);
  const auto silent = trace(kUser);
  const auto own = trace(kUser);
  write(*first, 1);
  write(*own, 1);
  EXPECT_EQ(traces_.find(0, kUser), own.get()) << "one that says nothing is passed over";
  EXPECT_EQ(traces_.find(own->number() + 1, kUser), nullptr);
  EXPECT_EQ(traces_.find(0, std::nullopt), first.get());
}

}  // namespace
}  // namespace verbena::agent
