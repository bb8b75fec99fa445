// SPDX-License-Identifier: Apache-2.0
// The filter program runs in the kernel, on a socket pair of the test: it passes the frames that arrive.
// There are no packet sockets here and no privilege; on these sockets the kernel removes no VLAN tag.
#include "adapter/net/packet/flow_filter.h"

#include <cerrno>
#include <list>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "wire/ethernet/frames.h"

namespace verbena::net {
namespace {

using ethernet::FlowKey;
using ethernet::parse_headers;
using ethernet::RuleKind;
using ethernet::SteeringRule;
using ethernet::SteeringTable;
using ethernet::testing::Frame;
using ethernet::testing::random_frame;
using ethernet::testing::random_rule;

// A socket pair whose second socket has a filter.
class Filtered {
 public:
  Filtered() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    from_.reset(ends[0]);
    to_.reset(ends[1]);
  }

  int set(const FilterProgram& program) {
    const sock_fprog all{static_cast<unsigned short>(program.size()),
                         const_cast<sock_filter*>(program.data())};
    return ::setsockopt(to_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof all) == 0 ? 0 : errno;
  }

  bool lets_pass(const Frame& frame) {
    // If the filter drops a frame, either the send fails or nothing arrives.
    (void)::send(from_.get(), frame.data(), frame.size(), 0);
    std::byte buffer[2048];
    const ssize_t got = ::recv(to_.get(), buffer, sizeof buffer, 0);
    EXPECT_TRUE(got < 0 || static_cast<size_t>(got) == frame.size()) << "cut short";
    return got >= 0;
  }

 private:
  UniqueFd from_, to_;
};

bool matches(const SteeringTable& table, const Frame& frame) {
  const auto headers = parse_headers(frame);
  bool any = false;
  if (headers) table.steer(headers->key, [&](const SteeringRule&) { any = true; });
  return any;
}

TEST(FlowFilter, OpenAndClosed) {
  Filtered filtered;
  ASSERT_EQ(filtered.set(make_open_filter()), 0);
  EXPECT_TRUE(filtered.lets_pass(ethernet::testing::udp4()));
  ASSERT_EQ(filtered.set(make_closed_filter()), 0);
  EXPECT_FALSE(filtered.lets_pass(ethernet::testing::udp4()));
}

TEST(FlowFilter, WithoutRulesNothingPasses) {
  Filtered filtered;
  ASSERT_EQ(filtered.set(make_flow_filter(SteeringTable()).program), 0);
  EXPECT_FALSE(filtered.lets_pass(ethernet::testing::udp4()));
}

TEST(FlowFilter, DefaultRulesLetTheirFramesPass) {
  SteeringRule all, multicast;
  all.kind = RuleKind::kAllDefault;
  multicast.kind = RuleKind::kMulticastDefault;
  Frame group = ethernet::testing::udp4();
  group[0] = std::byte{1};
  Filtered filtered;
  SteeringTable table;
  table.add(multicast);
  ASSERT_EQ(filtered.set(make_flow_filter(table).program), 0);
  EXPECT_TRUE(filtered.lets_pass(group));
  EXPECT_FALSE(filtered.lets_pass(ethernet::testing::udp4()));
  table.add(all);
  ASSERT_EQ(filtered.set(make_flow_filter(table).program), 0);
  EXPECT_TRUE(filtered.lets_pass(ethernet::testing::udp4()));
  EXPECT_FALSE(filtered.lets_pass(Frame(13))) << "no frame";
}

// Random frames and rules that nearly match: only frames that the table steers to a rule pass.
TEST(FlowFilter, PassesWhatTheTableWants) {
  const uint64_t seed = 91'011;
  SCOPED_TRACE(seed);
  Random random(seed);
  Filtered filtered;
  int passed = 0, dropped = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Frame> frames;
    for (int i = 0; i < 40; ++i) frames.push_back(random_frame(random));
    SteeringTable table;
    std::list<SteeringRule> rules;
    for (uint64_t count = random.below(6); count > 0; --count) {
      const auto headers = parse_headers(frames[random.below(frames.size())]);
      if (!headers) continue;
      const auto wanted = random_rule(random, headers->key);
      SteeringRule& rule = rules.emplace_back();
      rule.value = wanted.value;
      rule.mask = wanted.mask;
      rule.traps = !random.one_in(4);
      table.add(rule);
    }
    const FlowFilter filter = make_flow_filter(table);
    ASSERT_TRUE(filter.exact);
    ASSERT_EQ(filtered.set(filter.program), 0) << "the kernel does not take the program";
    for (const Frame& frame : frames) {
      const bool wanted = matches(table, frame);
      ASSERT_EQ(filtered.lets_pass(frame), wanted) << "round " << round;
      ++(wanted ? passed : dropped);
    }
  }
  EXPECT_GT(passed, 1000);
  EXPECT_GT(dropped, 1000);
}

TEST(FlowFilter, MoreRulesThanAProgramHoldsLetEverythingPass) {
  SteeringTable table;
  std::list<SteeringRule> rules;
  for (uint16_t port = 1; port <= 2000; ++port) {
    SteeringRule& rule = rules.emplace_back();
    rule.value.destination_port = byteswap(static_cast<uint16_t>(port + 10'000));
    rule.mask.destination_port = 0xffff;
    rule.value.layers = rule.mask.layers = ethernet::kUdp;
    table.add(rule);
  }
  const FlowFilter filter = make_flow_filter(table);
  EXPECT_FALSE(filter.exact);
  Filtered filtered;
  ASSERT_EQ(filtered.set(filter.program), 0);
  EXPECT_TRUE(filtered.lets_pass(ethernet::testing::udp4())) << "the table sorts it out";
}

}  // namespace
}  // namespace verbena::net
