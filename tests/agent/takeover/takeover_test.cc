// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/takeover.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/slots/domain_table.h"
#include "agent/slots/slot_table.h"
#include "agent/status/counter_publisher.h"
#include "control/client/agent_session.h"

namespace verbena::agent {
namespace {

using ::testing::HasSubstr;

// A socket of this user with some UDP port, as clients of an earlier agent have.
class PortHolderSocket {
 public:
  PortHolderSocket() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }
  void close() { socket_.reset(); }

 private:
  UniqueFd socket_;
  uint16_t port_ = 0;
};

class TakeoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wire.open();
    ASSERT_FALSE(wire.has_sockets());
    ASSERT_TRUE(wire.may_be_ours());
    takeover.begin();
    ASSERT_FALSE(takeover.is_settled());
  }
  void run_until_settled() {
    while (settled == 0) loop.run_round();
  }

  PortHolderSocket holder;
  EventLoop loop;
  Wire wire{holder.port()};
  SlotTable slot_table{wire, ::geteuid()};
  LinkTable links;
  ForeignCloser closer;
  CounterPublisher counters{loop, slot_table, links, closer, ::geteuid()};
  DomainTable domains{closer, ::geteuid(), DomainTable::room_with(1024)};
  AgentHost agent;
  SlotLeases slots{loop, wire, slot_table, counters, domains, agent};
  CmService connection_management{loop, closer, holder.port(), agent};
  int settled = 0;
  ServedUsers served{};
  Takeover takeover{{loop, wire, slots, links, connection_management, served}, [this] { ++settled; }};
};

TEST_F(TakeoverTest, HasTheWireWhereTheLastHolderEndsMeanwhile) {
  holder.close();
  run_until_settled();
  EXPECT_TRUE(takeover.is_settled());
  EXPECT_TRUE(wire.has_sockets()) << wire.reason();
}

// The machine is busy, and the agent does not run for all of its waiting time. Meanwhile a client comes,
// which is accepted in one round of the loop and heard in the next.
TEST_F(TakeoverTest, AcceptsAHolderThatCameBeforeTheDeadline) {
  std::this_thread::sleep_for(control::kSurvivorWait);
  const UniqueFd knock(::eventfd(1, EFD_CLOEXEC));
  const UniqueFd word(::eventfd(1, EFD_CLOEXEC));
  bool is_heard_in_time = false;
  loop.watch(knock.get(), EPOLLIN, [&](uint32_t) {
    loop.forget(knock.get());
    loop.watch(word.get(), EPOLLIN, [&](uint32_t) {
      loop.forget(word.get());
      is_heard_in_time = !takeover.is_settled();
    });
  });
  run_until_settled();
  EXPECT_TRUE(is_heard_in_time);
}

TEST_F(TakeoverTest, HasNoWireWhereTheHolderStaysAndBringsNothing) {
  run_until_settled();
  EXPECT_TRUE(takeover.is_settled());
  EXPECT_FALSE(wire.has_sockets());
  EXPECT_THAT(wire.reason(), HasSubstr("is taken by"));
  EXPECT_EQ(settled, 1);
}

}  // namespace
}  // namespace verbena::agent
