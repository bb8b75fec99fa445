// SPDX-License-Identifier: Apache-2.0
#include "control/client/client.h"

#include <cerrno>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/foreign_socket.h"
#include "base/lingering_socket.h"
#include "control/client/fake_host.h"

namespace verbena::control {
namespace {

using protocol::MessageType;
using test::FakeAgent;
using test::FakeHost;
using test::lend_slots;

Link link_named(std::string name) {
  Link link;
  link.name = std::move(name);
  link.netdev = "eth0";
  return link;
}

template <class Message>
std::optional<Message> find(FakeAgent& agent, MessageType type) {
  for (const FakeAgent::Request& each : agent.requests()) {
    if (each.type() == type) return each.as<Message>();
  }
  return {};
}

TEST(Client, TakesASlotAndGivesItBack) {
  FakeHost host;
  FakeAgent& agent = host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->index, 1u);
  EXPECT_FALSE(slot->socket);
  EXPECT_EQ(slot->no_wire_reason, test::kNoWire);
  EXPECT_FALSE((*client)->return_slot(slot->index + 1));
  EXPECT_TRUE((*client)->return_slot(slot->index));
  EXPECT_EQ(agent.count(MessageType::kReturnSlot), 1u) << "what is not ours is not given back";
}

TEST(Client, TellsTheNextAgentOfItsSlotsAndDomains) {
  FakeHost host;
  host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->take_slot());
  const auto kept = (*client)->take_slot();
  ASSERT_TRUE(kept);
  ASSERT_TRUE((*client)->return_slot(1));
  const UniqueFd file(::memfd_create("domain", MFD_CLOEXEC));
  ASSERT_TRUE((*client)->open_domain(7, kept->index, {file.get(), 3, true, true}));
  ASSERT_TRUE((*client)->open_domain(8, kept->index, {file.get(), 3, true, false}));
  (*client)->close_domain(8);

  host.agent().die();
  FakeAgent& successor = host.run(lend_slots());
  ASSERT_TRUE((*client)->links());
  EXPECT_EQ(successor.count(MessageType::kKeepSlot), 0u);
  ASSERT_EQ(successor.count(MessageType::kClaimSlot), 1u);
  const auto claimed = find<protocol::ClaimSlotRequest>(successor, MessageType::kClaimSlot);
  EXPECT_EQ(claimed->index, kept->index);
  EXPECT_EQ(claimed->secret, test::secret_of(kept->index));
  ASSERT_EQ(successor.count(MessageType::kOpenDomain), 1u);
  const auto opened = find<protocol::DomainRequest>(successor, MessageType::kOpenDomain);
  EXPECT_EQ(opened->domain, 7u);
  EXPECT_EQ(opened->slot, kept->index);
  EXPECT_EQ(opened->device_index, 3u);
  EXPECT_EQ(opened->flags, protocol::DomainRequest::kCreate) << "another process may have been quicker";
}

TEST(Client, IsKnownByItsPidWhereItsPageHasNoSecretOrTheNextAgentIsOlder) {
  FakeHost host;
  host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  const auto without = (*client)->take_slot(), with = (*client)->take_slot();
  ASSERT_TRUE(without && with);
  host.agent().die();
  FakeAgent& successor = host.run([lend = lend_slots()](const FakeAgent::Request& request) mutable {
    if (request.type() == MessageType::kClaimSlot)
      return FakeAgent::refuse(request, protocol::kProtocolVersion, EOPNOTSUPP);
    return lend(request);
  });
  ASSERT_TRUE((*client)->links());
  EXPECT_EQ(successor.count(MessageType::kClaimSlot), 1u);
  EXPECT_EQ(successor.count(MessageType::kKeepSlot), 2u);
}

TEST(Client, TheNextAgentsLinksAreNews) {
  FakeHost host;
  host.run(lend_slots({link_named("before")}));
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  EXPECT_FALSE((*client)->next_links()) << "the first agent's are asked for";
  host.agent().die();
  host.run(lend_slots({link_named("after")}));
  std::optional<std::vector<Link>> links;
  while (!links) {
    pollfd entry{(*client)->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
    links = (*client)->next_links();
  }
  ASSERT_EQ(links->size(), 1u);
  EXPECT_EQ(links->front().name, "after");
}

TEST(Client, HearsOfLinksAndPeers) {
  FakeHost host;
  FakeAgent& agent = host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  LinkSnapshot snapshot;
  snapshot.links = {link_named("new")};
  const UniqueFd file = std::move(*write_link_file(snapshot));
  const int fd = file.get();
  agent.send_event(protocol::bytes_of(protocol::request_header(MessageType::kLinksChanged, 1)), {&fd, 1});
  protocol::PeerMessage peer{};
  peer.header = protocol::request_header(MessageType::kPeer, 2);
  peer.header.error = ENOENT;
  peer.domain = 7;
  agent.send_event(protocol::bytes_of(peer));
  const auto links = (*client)->next_links();
  ASSERT_TRUE(links);
  EXPECT_EQ(links->front().name, "new");
  const auto peers = (*client)->next_peers();
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].domain, 7u);
  EXPECT_EQ(peers[0].error, ENOENT);
}

TEST(Client, AsksForChannelsAndHearsOfThem) {
  FakeHost host;
  FakeAgent& agent = host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->ask_for_channel(3, 4));
  const auto question = agent.read_event();
  ASSERT_EQ(question.size(), sizeof(protocol::ChannelMessage));
  const auto asked = protocol::read_as<protocol::ChannelMessage>(question);
  EXPECT_EQ(asked.header.type, static_cast<uint16_t>(MessageType::kAskChannel));
  EXPECT_EQ(asked.own_slot, 3u);
  EXPECT_EQ(asked.peer_slot, 4u);

  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  UniqueFd theirs(ends[0]);
  const UniqueFd ours(ends[1]);
  protocol::ChannelMessage answer{protocol::request_header(MessageType::kChannel, 6), 3, 4, 1, 0};
  const int fd = theirs.get();
  agent.send_event(protocol::bytes_of(answer), {&fd, 1});
  theirs.reset();
  answer.header.error = ENOENT;
  answer.peer_slot = 5;
  agent.send_event(protocol::bytes_of(answer));
  pollfd entry{(*client)->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  EXPECT_FALSE((*client)->next_links());
  const auto channels = (*client)->next_channels();
  ASSERT_EQ(channels.size(), 2u);
  EXPECT_EQ(channels[0].own_slot, 3u);
  EXPECT_EQ(channels[0].peer_slot, 4u);
  EXPECT_TRUE(channels[0].asked);
  EXPECT_EQ(channels[0].error, 0);
  ASSERT_TRUE(channels[0].socket);
  EXPECT_EQ(::send(ours.get(), "x", 1, MSG_NOSIGNAL), 1);
  char heard = 0;
  EXPECT_EQ(::recv(channels[0].socket.get(), &heard, 1, 0), 1);
  EXPECT_EQ(channels[1].peer_slot, 5u);
  EXPECT_EQ(channels[1].error, ENOENT);
  EXPECT_FALSE(channels[1].socket);
  EXPECT_TRUE((*client)->next_channels().empty());

  for (int i = 0; i < 2; ++i) {  // one acknowledgement for each
    const auto seen = agent.read_event();
    ASSERT_EQ(seen.size(), sizeof(protocol::MessageHeader));
    const auto header = protocol::read_as<protocol::MessageHeader>(seen);
    EXPECT_EQ(header.type, static_cast<uint16_t>(MessageType::kChannelSeen));
    EXPECT_EQ(header.sequence, 6u);
  }
}

// A message about a channel to a process of this user.
protocol::ChannelMessage channel_message(uint32_t sequence, int error, uid_t user) {
  protocol::ChannelMessage message{protocol::request_header(MessageType::kChannel, sequence), 3, 4, 0, user};
  message.header.error = error;
  return message;
}

// Until the acknowledgement no other user gets the slot. Other users decide how many descriptors wait.
TEST(Client, AcknowledgesTheEndOfALeaseWhateverDescriptorsWaitToBeClosed) {
  constexpr uid_t kSlow = 1'000'000;
  verbena::test::LingeringSocket lingering;
  discard(lingering.take());
  ASSERT_TRUE(verbena::test::becomes_true(verbena::test::is_discarding));
  for (int i = 0; i < 8; ++i) discard(UniqueFd(::memfd_create("waits", MFD_CLOEXEC)), kSlow);
  FakeHost host;
  FakeAgent& agent = host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  agent.send_event(protocol::bytes_of(channel_message(6, EAGAIN, kSlow)));
  agent.send_event(protocol::bytes_of(channel_message(7, ESTALE, kSlow)));
  agent.send_event(protocol::bytes_of(channel_message(8, EAGAIN, kSlow + 1)));
  pollfd entry{(*client)->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  (*client)->next_links();
  EXPECT_EQ((*client)->next_channels().size(), 3u);
  for (const uint32_t sequence : {7u, 8u}) {
    const auto seen = agent.read_event();
    ASSERT_EQ(seen.size(), sizeof(protocol::MessageHeader));
    EXPECT_EQ(protocol::read_as<protocol::MessageHeader>(seen).type,
              static_cast<uint16_t>(MessageType::kChannelSeen));
    EXPECT_EQ(protocol::read_as<protocol::MessageHeader>(seen).sequence, sequence);
  }
  EXPECT_TRUE(agent.read_event().empty()) << "that of the user whose descriptors wait";
  lingering.cut_short();
  verbena::test::await_discards();
  ASSERT_TRUE((*client)->ask_for_channel(3, 5));
  const auto owed = agent.read_event();
  ASSERT_EQ(owed.size(), sizeof(protocol::MessageHeader));
  EXPECT_EQ(protocol::read_as<protocol::MessageHeader>(owed).sequence, 6u);
}

TEST(Client, AsksAnAgentOfBeforeChannelsForNone) {
  FakeHost host;
  FakeAgent& agent = host.run([](const FakeAgent::Request& request) {
    return FakeAgent::greet(request, protocol::kFirstVersionWithChannels - 1);
  });
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  const auto asked = (*client)->ask_for_channel(3, 4);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, EOPNOTSUPP);
  EXPECT_TRUE(agent.read_event().empty());
}

TEST(Client, AsksForNoChannelWhereThereIsNoAgent) {
  FakeHost host;
  host.run(lend_slots());
  const auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  host.agent().die();
  (*client)->next_links();  // notices the end of the connection
  const auto asked = (*client)->ask_for_channel(3, 4);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, ENOTCONN);
}

}  // namespace
}  // namespace verbena::control
