// SPDX-License-Identifier: Apache-2.0
// How much memory the traces of one user's connections take, and what a reader can do to one.
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cm/connection_trace.h"
#include "base/sealed_file.h"
#include "control/protocol/trace_ring.h"
#include "observe/trace/reader.h"

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

  EventLoop loop_;
  ForeignCloser closer_;
  static constexpr Quota::Size kReaders = ConnectionTraces::readers_with(65536);
  ConnectionTraces traces_{loop_, closer_, kOwn, kReaders, {}};
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

// A process that has a file can make each access to its pages wait.
TEST_F(ConnectionTraceShares, AReaderHasACopyThatTheAgentDoesNotTouch) {
  auto one = trace(kUser);
  write(*one, 50);
  const auto first = traces_.lease(*one, kUser);
  write(*one, 10);
  const auto second = traces_.lease(*one, kUser);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(trace::Reader(first->get(), 0).read().size(), 50u);
  trace::Reader reader(second->get(), 0);
  EXPECT_EQ(reader.read().size(), 60u);
  write(*one, 5);
  const auto third = traces_.lease(*one, kUser);
  ASSERT_TRUE(third);
  reader.read_from(third->get());
  EXPECT_EQ(reader.read().size(), 5u) << "it goes on where it was";
  one.reset();
  EXPECT_EQ(traces_.pages_of(kUser), 0u);
}

TEST_F(ConnectionTraceShares, ReadersOfOneUsersTracesLeaveOthersTheirs) {
  std::vector<UniqueFd> held;
  Result<UniqueFd> leased = fail(EAGAIN);
  do {
    const auto one = trace(kUser);
    write(*one, 1);
    leased = traces_.lease(*one, kUser);
    if (leased) held.push_back(std::move(*leased));
  } while (leased && held.size() < kReaders.all);
  ASSERT_FALSE(leased);
  EXPECT_EQ(leased.error().code, EDQUOT);
  EXPECT_LT(held.size(), kReaders.all - kReaders.reserve);
  const auto others = trace(kOther);
  write(*others, 1);
  EXPECT_TRUE(traces_.lease(*others, kOther));
}

TEST_F(ConnectionTraceShares, AReaderCannotWriteItsCopy) {
  const auto one = trace(kUser);
  write(*one, 1);
  const auto leased = traces_.lease(*one, kUser);
  ASSERT_TRUE(leased);
  struct stat about {};
  ASSERT_EQ(::fstat(leased->get(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u) << "others could open it again for writing";
  EXPECT_TRUE(has_sealed_size(leased->get(), sizeof(protocol::TraceRings)));
}

// Else one user could keep root from reading all users' traces.
TEST_F(ConnectionTraceShares, ACopyCountsForItsReader) {
  const auto one = trace(kUser);
  write(*one, 1);
  std::vector<UniqueFd> taken;
  while (auto copy = traces_.lease(*one, kUser)) taken.push_back(std::move(*copy));
  EXPECT_FALSE(traces_.lease(*one, kUser));
  EXPECT_TRUE(traces_.lease(*one, kOther));
  EXPECT_TRUE(traces_.lease(*one, kOwn));
}

}  // namespace
}  // namespace verbena::agent
