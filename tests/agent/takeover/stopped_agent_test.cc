// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/slots/slot_packets.h"
#include "agent/slots/wire.h"
#include "agent/takeover/stopped_processes.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A slot of an agent, and a child process that plays the agent.
class StoppedAgentTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    wire_.open();
    ASSERT_TRUE(wire_.add());
    wire_.unmute(1);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    forwarder_end_.reset(ends[0]);
    receiver_.reset(ends[1]);
    takeover_state_ = std::move(*TakeoverState::create());
    SlotRecord record;
    record.index = 1;
    record.leased = true;
    record.socket = wire_.socket(1);
    record.forwarder_end = forwarder_end_.get();
    ASSERT_TRUE(takeover_state_.put_slot(SlotRecord{}));
    ASSERT_TRUE(takeover_state_.put_slot(record));
    agent_ = ::fork();
    if (agent_ == 0) {
      for (;;) ::pause();
    }
    ASSERT_GT(agent_, 0);
    stopped_agent_.watch(agent_, UniqueFd(::fcntl(takeover_state_.client_end(), F_DUPFD_CLOEXEC, 3)));
  }
  void TearDown() override {
    if (agent_ <= 0) return;
    ::kill(agent_, SIGKILL);
    ::waitpid(agent_, nullptr, 0);
  }
  void signal_agent(int number) const {
    ASSERT_EQ(::kill(agent_, number), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(agent_, &status, WUNTRACED | WCONTINUED), agent_);
  }
  bool has_waiting() const {
    int bytes = 0;
    return ::ioctl(wire_.socket(1), SIOCINQ, &bytes) == 0 && bytes > 0;
  }

  Wire wire_{roce::kUdpPort};
  UniqueFd forwarder_end_;
  UniqueFd receiver_;
  TakeoverState takeover_state_;
  pid_t agent_ = -1;
  StoppedAgent stopped_agent_;
};

TEST_F(StoppedAgentTest, ForwardsWhatComesWhileTheAgentIsStopped) {
  ASSERT_TRUE(test::send_to_slot(1, 1));
  EXPECT_THAT(test::forwarded_tags(receiver_.get(), 300), IsEmpty()) << "it runs";
  signal_agent(SIGSTOP);
  EXPECT_THAT(test::forwarded_tags(receiver_.get()), ElementsAre(1u));
  ASSERT_TRUE(test::send_to_slot(1, 2));
  EXPECT_THAT(test::forwarded_tags(receiver_.get()), ElementsAre(2u));

  signal_agent(SIGCONT);
  const TimePoint deadline = MonotonicClock::now() + std::chrono::seconds(10);
  while (!has_waiting() && MonotonicClock::now() < deadline) {
    ASSERT_TRUE(test::send_to_slot(1, 3));
    test::forwarded_tags(receiver_.get(), 10);
  }
  EXPECT_TRUE(has_waiting()) << "it goes on";
  signal_agent(SIGSTOP);
  EXPECT_FALSE(test::forwarded_tags(receiver_.get()).empty()) << "stopped again";
}

TEST_F(StoppedAgentTest, LeavesTheTakeoverStateUnchanged) {
  signal_agent(SIGSTOP);
  ASSERT_TRUE(test::send_to_slot(1, 1));
  EXPECT_THAT(test::forwarded_tags(receiver_.get()), ElementsAre(1u));
  const TakeoverState::Contents contents = TakeoverState::take(takeover_state_.client_end());
  ASSERT_EQ(contents.slots.size(), 2u);
  EXPECT_GE(contents.slots[1].socket, 0);
  EXPECT_GE(contents.slots[1].forwarder_end, 0);
}

TEST_F(StoppedAgentTest, ReachesNobodyOnceTheSlotWasTakenBack) {
  signal_agent(SIGSTOP);
  ASSERT_TRUE(test::send_to_slot(1, 1));
  EXPECT_THAT(test::forwarded_tags(receiver_.get()), ElementsAre(1u));
  ASSERT_TRUE(wire_.go_on_forwarding(1, 1000, UniqueFd(::fcntl(forwarder_end_.get(), F_DUPFD_CLOEXEC, 3))));
  wire_.hang_up(1);  // as a resumed agent does, before the standby notices it
  wire_.mute(1);
  wire_.unmute(1);
  ASSERT_TRUE(test::send_to_slot(1, 2));
  EXPECT_THAT(test::forwarded_tags(receiver_.get(), 300), IsEmpty());
}

}  // namespace
}  // namespace verbena::agent
