// SPDX-License-Identifier: Apache-2.0
// Channels between two clients' slots, which the agent sets up.
#include <cerrno>
#include <csignal>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "base/foreign_socket.h"
#include "base/lingering_socket.h"
#include "control/client/client.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena {
namespace {

using control::Client;
using control::SlotChannel;
using test::AgentProcess;
using test::eventually;

constexpr uint32_t kNobodys = 999;

// A process with a slot, as an engine has one.
struct Member {
  Member() {
    auto connected = Client::connect({.start_agent = false, .agent_program = {}});
    EXPECT_TRUE(connected);
    if (!connected) return;
    client = std::move(*connected);
    slot = take_slot();
  }
  control::Slot take_slot() {
    auto leased = client->take_slot();
    EXPECT_TRUE(leased);
    return leased ? std::move(*leased) : control::Slot();
  }
  // Waits for the next event about a channel.
  SlotChannel hear() {
    for (int turn = 0; turn < 100; ++turn) {
      if (!waiting.empty()) {
        SlotChannel first = std::move(waiting.front());
        waiting.erase(waiting.begin());
        return first;
      }
      pollfd entry{client->event_fd(), POLLIN, 0};
      ::poll(&entry, 1, 100);
      (void)client->next_links();
      for (SlotChannel& channel : client->next_channels()) waiting.push_back(std::move(channel));
    }
    ADD_FAILURE() << "no news";
    return {};
  }
  SlotChannel ask(uint32_t own_slot, uint32_t peer_slot) {
    EXPECT_TRUE(client->ask_for_channel(own_slot, peer_slot));
    return hear();
  }
  SlotChannel ask(uint32_t peer_slot) { return ask(slot.index, peer_slot); }

  std::unique_ptr<Client> client;
  control::Slot slot;
  std::vector<SlotChannel> waiting;
};

void expect_joined(const UniqueFd& a, const UniqueFd& b) {
  ASSERT_TRUE(a);
  ASSERT_TRUE(b);
  const char word[] = "hello";
  char heard[sizeof word] = {};
  ASSERT_EQ(::send(a.get(), word, sizeof word, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof word));
  ASSERT_EQ(::recv(b.get(), heard, sizeof heard, 0), static_cast<ssize_t>(sizeof word));
  EXPECT_STREQ(heard, word);
}

void expect_none(const SlotChannel& answer, int error) {
  EXPECT_TRUE(answer.asked);
  EXPECT_EQ(answer.error, error);
  EXPECT_FALSE(answer.socket);
}

class Channels : public test::NamespaceTest {};

TEST_F(Channels, TheAgentJoinsWhoAsksWithWhoHasTheSlot) {
  AgentProcess agent;
  Member a;
  Member b;
  const SlotChannel asked = a.ask(b.slot.index);
  const SlotChannel asking = b.hear();
  EXPECT_EQ(asked.own_slot, a.slot.index);
  EXPECT_EQ(asked.peer_slot, b.slot.index);
  EXPECT_TRUE(asked.asked);
  EXPECT_EQ(asked.error, 0);
  EXPECT_EQ(asking.own_slot, b.slot.index);
  EXPECT_EQ(asking.peer_slot, a.slot.index);
  EXPECT_FALSE(asking.asked);
  EXPECT_EQ(asking.error, 0);
  expect_joined(asked.socket, asking.socket);
}

TEST_F(Channels, BothEndsAreAsTheClientsNeedThem) {
  AgentProcess agent;
  Member a;
  Member b;
  const SlotChannel ends[] = {a.ask(b.slot.index), b.hear()};
  for (const SlotChannel& end : ends) {
    int type = 0;
    socklen_t length = sizeof type;
    ASSERT_EQ(::getsockopt(end.socket.get(), SOL_SOCKET, SO_TYPE, &type, &length), 0);
    EXPECT_EQ(type, SOCK_SEQPACKET);
    EXPECT_NE(::fcntl(end.socket.get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(end.socket.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

// The process of that slot may keep its end, while the slot goes to another user.
TEST_F(Channels, AProcessHearsThatTheOtherSlotWasReturned) {
  AgentProcess agent;
  Member a;
  Member b;
  const SlotChannel kept[] = {a.ask(b.slot.index), b.hear()};
  ASSERT_TRUE(b.client->return_slot(b.slot.index));
  const SlotChannel end = a.hear();
  EXPECT_EQ(end.own_slot, a.slot.index);
  EXPECT_EQ(end.peer_slot, b.slot.index);
  EXPECT_FALSE(end.asked);
  EXPECT_EQ(end.error, ESTALE);
  EXPECT_FALSE(end.socket);
}

TEST_F(Channels, AProcessHearsThatTheOtherProcessHasEnded) {
  AgentProcess agent;
  Member a;
  auto b = std::make_unique<Member>();
  const uint32_t other = b->slot.index;
  const SlotChannel kept[] = {a.ask(other), b->hear()};
  b.reset();
  const SlotChannel end = a.hear();
  EXPECT_EQ(end.error, ESTALE);
  EXPECT_EQ(end.peer_slot, other);
}

TEST_F(Channels, AProcessThatDoesNotReadHearsOfReturnedSlotsLater) {
  AgentProcess agent;
  Member a;
  Member b;
  for (uint32_t i = 0; i < protocol::kMaxChannelsUnseen; ++i) {
    ASSERT_TRUE(b.client->ask_for_channel(b.slot.index, a.slot.index));
    b.hear();
  }
  ASSERT_TRUE(b.client->return_slot(b.slot.index));
  for (uint32_t i = 0; i < protocol::kMaxChannelsUnseen; ++i) EXPECT_EQ(a.hear().error, 0);
  EXPECT_EQ(a.hear().error, ESTALE);
}

// The agent keeps no copy of either end: each process sees the other close its end.
TEST_F(Channels, AProcessSeesTheOtherOneLetGo) {
  AgentProcess agent;
  Member a;
  Member b;
  const SlotChannel asked = a.ask(b.slot.index);
  b.hear().socket.reset();
  pollfd end{asked.socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, 10'000), 1);
  char byte;
  EXPECT_EQ(::recv(asked.socket.get(), &byte, 1, 0), 0);
}

TEST_F(Channels, ThereMayBeSeveralBetweenTheSameSlots) {
  AgentProcess agent;
  Member a;
  Member b;
  const SlotChannel first = a.ask(b.slot.index);
  const SlotChannel second = a.ask(b.slot.index);
  const SlotChannel of_first = b.hear();
  const SlotChannel of_second = b.hear();
  expect_joined(first.socket, of_first.socket);
  expect_joined(of_second.socket, second.socket);
}

TEST_F(Channels, AProcessIsJoinedWithItselfByTwoOfItsSlots) {
  AgentProcess agent;
  Member a;
  const uint32_t other = a.take_slot().index;
  const SlotChannel asking = a.ask(other);
  EXPECT_FALSE(asking.asked) << "the agent informs the other client first";
  EXPECT_EQ(asking.own_slot, other);
  EXPECT_EQ(asking.peer_slot, a.slot.index);
  const SlotChannel asked = a.hear();
  EXPECT_TRUE(asked.asked);
  EXPECT_EQ(asked.own_slot, a.slot.index);
  EXPECT_EQ(asked.peer_slot, other);
  expect_joined(asked.socket, asking.socket);
}

TEST_F(Channels, NobodyIsJoinedWithASlotThatNobodyHas) {
  AgentProcess agent;
  Member a;
  Member returns;
  auto ends = std::make_unique<Member>();
  const uint32_t gone[] = {returns.slot.index, ends->slot.index};
  ASSERT_TRUE(returns.client->return_slot(returns.slot.index));
  ends.reset();
  // The agent may notice the end of a connection later.
  for (const uint32_t slot : gone) EXPECT_TRUE(eventually([&] { return a.ask(slot).error == ENOENT; }));
  expect_none(a.ask(kNobodys), ENOENT);
  expect_none(a.ask(0), ENOENT);  // the agent's own slot
  expect_none(a.ask(0xffffffff), ENOENT);
}

TEST_F(Channels, NobodyAsksForTheSlotOfAnother) {
  AgentProcess agent;
  Member a;
  Member b;
  expect_none(a.ask(b.slot.index, a.slot.index), EINVAL);
  expect_none(a.ask(kNobodys, b.slot.index), EINVAL);
  expect_none(a.ask(a.slot.index, a.slot.index), EINVAL);
  (void)b.client->next_links();
  EXPECT_TRUE(b.client->next_channels().empty());
}

TEST_F(Channels, AClientThatDoesNotReadHoldsNobodyUp) {
  AgentProcess agent;
  Member a;
  Member b;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < protocol::kMaxChannelsUnseen + 10; ++i) {
    refused += a.ask(b.slot.index).error == EAGAIN ? 1 : 0;
  }
  EXPECT_EQ(refused, 10u);
  b.hear();
  EXPECT_TRUE(eventually([&] { return a.ask(b.slot.index).error == 0; }));
}

// A client that requests channels but reads no answers gets a limited number of them. The other process sees
// its end closed.
TEST_F(Channels, AnAskerThatDoesNotReadCostsABoundedNumberOfSockets) {
  AgentProcess agent;
  Member a;
  Member b;
  constexpr uint32_t kMany = protocol::kMaxChannelsUnseen + 10;
  std::vector<SlotChannel> told;
  for (uint32_t i = 0; i < kMany; ++i) {
    ASSERT_TRUE(a.client->ask_for_channel(a.slot.index, b.slot.index));
    told.push_back(b.hear());
  }
  char byte;
  for (uint32_t i = protocol::kMaxChannelsUnseen; i < kMany; ++i) {
    EXPECT_TRUE(eventually([&] { return ::recv(told[i].socket.get(), &byte, 1, 0) == 0; }));
  }
  for (uint32_t i = 0; i < protocol::kMaxChannelsUnseen; ++i) expect_joined(a.hear().socket, told[i].socket);
  EXPECT_TRUE(a.waiting.empty());
}

// To the client that requested the channel, the process has closed its end.
TEST_F(Channels, OneThatIsGoneBeforeItHearsHasClosedItsEnd) {
  AgentProcess agent;
  Member a;
  for (int round = 0; round < 20; ++round) {
    auto b = std::make_unique<Member>();
    ASSERT_TRUE(a.client->ask_for_channel(a.slot.index, b->slot.index));
    b.reset();
    const SlotChannel answer = a.hear();
    if (answer.error != 0) continue;  // the agent has noticed the end before the request
    char byte;
    EXPECT_TRUE(eventually([&] { return ::recv(answer.socket.get(), &byte, 1, 0) == 0; }));
  }
}

TEST_F(Channels, ChannelsOutliveTheAgentAndTheNextOneMakesOthers) {
  auto agent = std::make_unique<AgentProcess>();
  Member a;
  Member b;
  const SlotChannel before = a.ask(b.slot.index);
  const SlotChannel of_before = b.hear();
  agent->stop(SIGKILL);
  expect_joined(before.socket, of_before.socket);
  agent = std::make_unique<AgentProcess>();
  EXPECT_TRUE(eventually([&] { return a.client->links().has_value(); }));
  expect_none(a.ask(b.slot.index), EAGAIN);  // the other process has not reconnected yet
  EXPECT_TRUE(eventually([&] { return b.client->links().has_value(); }));
  const SlotChannel asked = a.ask(b.slot.index);
  const SlotChannel asking = b.hear();
  expect_joined(asked.socket, asking.socket);
  expect_joined(before.socket, of_before.socket);
}

// Sockets of a hostile client may take long to close. Until they are closed, each counts as a descriptor of
// the victim, which has done nothing.
TEST_F(Channels, WhoSendsWhatTakesLongToCloseTakesFewDescriptors) {
  AgentProcess agent;
  Member victim;
  Member hostile;
  // The first slow close. Later closes wait for it, among them that of the agent's copy of the socket.
  test::LingeringSocket lingering;
  discard(lingering.take());
  ASSERT_TRUE(test::becomes_true(test::is_discarding));
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(hostile.client->ask_for_channel(hostile.slot.index, victim.slot.index));
    // Both ends are in this process, so at some point the hostile client gets no answer either.
    pollfd entry{hostile.client->event_fd(), POLLIN, 0};
    ::poll(&entry, 1, 1000);
    (void)hostile.client->next_links();
    const std::vector<SlotChannel> answer = hostile.client->next_channels();
    if (answer.empty() || !answer.front().socket) break;
    const int file = STDERR_FILENO;
    ASSERT_TRUE(control::send_message(answer.front().socket.get(), as_bytes(std::span("x")), {&file, 1}));
    (void)victim.client->next_links();
    // Acts as a process that finds an unknown descriptor in a channel.
    for (SlotChannel& channel : victim.client->next_channels()) {
      ForeignSocket(std::move(channel.socket)).hang_up_later(channel.peer_user);
    }
  }
  EXPECT_GT(discarding(), 0u);
  EXPECT_LT(discarding(), 128u);
  lingering.cut_short();
  test::await_discards();
  // When they are closed, the victim can have channels again.
  Member other;
  EXPECT_TRUE(victim.ask(other.slot.index).socket);
  const SlotChannel theirs = hostile.ask(victim.slot.index);
  expect_joined(theirs.socket, victim.hear().socket);
}

}  // namespace
}  // namespace verbena
