// SPDX-License-Identifier: Apache-2.0
// XRC domains that clients share through the agent.
#include <cerrno>
#include <csignal>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "base/temporary_file.h"
#include "control/client/client.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena {
namespace {

using control::Client;
using control::DomainPeer;
using test::AgentProcess;
using test::eventually;
using test::temporary_file;

constexpr uint32_t kDevice = 0;

// A process with a slot, as an engine has one.
struct Member {
  Member() {
    auto connected = Client::connect({.start_agent = false, .agent_program = {}});
    EXPECT_TRUE(connected);
    if (!connected) return;
    client = std::move(*connected);
    auto leased = client->take_slot();
    EXPECT_TRUE(leased);
    if (leased) slot = std::move(*leased);
  }
  // Returns 0 or the error.
  int open(uint64_t name, int fd, bool create = true, bool exclusive = false) {
    const auto opened = client->open_domain(
        name, slot.index, {.fd = fd, .device_index = kDevice, .create = create, .exclusive = exclusive});
    return opened ? 0 : opened.error().code;
  }
  // Waits for the next event about a peer.
  DomainPeer hear() {
    for (int turn = 0; turn < 100; ++turn) {
      if (!waiting.empty()) {
        DomainPeer first = std::move(waiting.front());
        waiting.erase(waiting.begin());
        return first;
      }
      pollfd entry{client->event_fd(), POLLIN, 0};
      ::poll(&entry, 1, 100);
      (void)client->next_links();
      for (DomainPeer& peer : client->next_peers()) waiting.push_back(std::move(peer));
    }
    ADD_FAILURE() << "no news";
    return {};
  }

  std::unique_ptr<Client> client;
  control::Slot slot;
  std::vector<DomainPeer> waiting;
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

class Domains : public test::NamespaceTest {
 protected:
  UniqueFd file = temporary_file();
};

TEST_F(Domains, TheAgentJoinsWhoAsksWithWhomItAsksFor) {
  AgentProcess agent;
  Member a;
  Member b;
  ASSERT_EQ(a.open(10, file.get()), 0);
  ASSERT_EQ(b.open(20, file.get(), false), 0);
  a.client->ask_for_peer(10, b.slot.index);
  const DomainPeer asked = a.hear();
  const DomainPeer asking = b.hear();
  EXPECT_EQ(asked.domain, 10u);
  EXPECT_EQ(asked.slot, b.slot.index);
  EXPECT_TRUE(asked.asked);
  EXPECT_EQ(asking.domain, 20u);
  EXPECT_EQ(asking.slot, a.slot.index);
  EXPECT_FALSE(asking.asked);
  expect_joined(asked.socket, asking.socket);
}

TEST_F(Domains, NobodyIsJoinedWithWhoHasNotTheDomainOpen) {
  AgentProcess agent;
  Member a;
  Member b;
  const UniqueFd other = temporary_file();
  ASSERT_EQ(a.open(10, file.get()), 0);
  ASSERT_EQ(b.open(10, other.get()), 0);
  for (const uint32_t slot : {b.slot.index, 999u}) {
    a.client->ask_for_peer(10, slot);
    const DomainPeer none = a.hear();
    EXPECT_EQ(none.error, ENOENT);
    EXPECT_FALSE(none.socket);
  }
  b.client->ask_for_peer(11, a.slot.index);  // a domain that does not exist
  EXPECT_EQ(b.hear().error, ENOENT);
  EXPECT_TRUE(a.client->next_peers().empty());
}

// Nobody could acknowledge the end of its lease, and the slot would be lost to other users.
TEST_F(Domains, NobodyIsJoinedWithItself) {
  AgentProcess agent;
  Member a;
  ASSERT_EQ(a.open(10, file.get()), 0);
  a.client->ask_for_peer(10, a.slot.index);
  const DomainPeer none = a.hear();
  EXPECT_EQ(none.error, EINVAL);
  EXPECT_FALSE(none.socket);
}

TEST_F(Domains, ADomainIsLeftByClosingBySlotAndByDeath) {
  AgentProcess agent;
  Member a;
  auto b = std::make_unique<Member>();
  auto c = std::make_unique<Member>();
  Member d;
  for (Member* member : {&a, b.get(), c.get(), &d}) ASSERT_EQ(member->open(10, file.get()), 0);
  const uint32_t slots[] = {b->slot.index, c->slot.index, d.slot.index};
  b->client->close_domain(10);
  c.reset();
  ASSERT_TRUE(d.client->return_slot(d.slot.index));
  for (const uint32_t slot : slots) {
    // The agent may notice the end of a connection later.
    EXPECT_TRUE(eventually([&] {
      a.client->ask_for_peer(10, slot);
      return a.hear().error == ENOENT;
    }));
  }
  EXPECT_EQ(b->open(10, file.get(), true, true), EINVAL);
  a.client->close_domain(10);
  EXPECT_EQ(b->open(10, file.get(), true, true), 0);
}

TEST_F(Domains, AProcessHearsThatTheOtherReturnsItsSlot) {
  AgentProcess agent;
  Member a;
  Member b;
  for (Member* member : {&a, &b}) ASSERT_EQ(member->open(10, file.get()), 0);
  a.client->ask_for_peer(10, b.slot.index);
  const DomainPeer kept[] = {a.hear(), b.hear()};
  ASSERT_TRUE(b.client->return_slot(b.slot.index));
  const DomainPeer end = a.hear();
  EXPECT_TRUE(end.is_end_of_lease());
  EXPECT_EQ(end.slot, b.slot.index);
  EXPECT_EQ(end.own_slot, a.slot.index);
}

TEST_F(Domains, ASlotOfSomebodyElseIsNotOpenedWith) {
  AgentProcess agent;
  Member a;
  Member b;
  const auto opened = a.client->open_domain(
      10, b.slot.index, {.fd = file.get(), .device_index = kDevice, .create = true, .exclusive = false});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, EINVAL);
}

TEST_F(Domains, AClientThatDoesNotReadHoldsNobodyUp) {
  AgentProcess agent;
  Member a;
  Member b;
  ASSERT_EQ(a.open(10, file.get()), 0);
  ASSERT_EQ(b.open(10, file.get()), 0);
  uint32_t refused = 0;
  for (uint32_t i = 0; i < protocol::kMaxPeersUnseen + 10; ++i) {
    a.client->ask_for_peer(10, b.slot.index);
    refused += a.hear().error == EAGAIN ? 1 : 0;
  }
  EXPECT_EQ(refused, 10u);
  b.hear();
  EXPECT_TRUE(eventually([&] {
    a.client->ask_for_peer(10, b.slot.index);
    return a.hear().error == 0;
  }));
}

TEST_F(Domains, TheNextAgentLearnsOfThem) {
  auto agent = std::make_unique<AgentProcess>();
  Member a;
  Member b;
  ASSERT_EQ(a.open(10, file.get()), 0);
  ASSERT_EQ(b.open(20, file.get()), 0);
  agent->stop(SIGKILL);
  agent = std::make_unique<AgentProcess>();
  EXPECT_TRUE(eventually([&] { return a.client->links().has_value(); }));
  a.client->ask_for_peer(10, b.slot.index);
  EXPECT_EQ(a.hear().error, EAGAIN) << "the other has not come back yet";
  EXPECT_TRUE(eventually([&] { return b.client->links().has_value(); }));
  a.client->ask_for_peer(10, b.slot.index);
  const DomainPeer asked = a.hear();
  const DomainPeer asking = b.hear();
  expect_joined(asked.socket, asking.socket);
}

}  // namespace
}  // namespace verbena
