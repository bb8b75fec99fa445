// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/client_events.h"

#include <cerrno>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

using control::receive_message;
using control::send_message;
using protocol::MessageType;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uid_t kUser = 1'000'000;  // not the user who runs the tests

// The event that no process has the domain open.
control::DomainPeer no_peer(uint64_t domain) {
  control::DomainPeer peer;
  peer.domain = domain;
  peer.error = ENOENT;
  return peer;
}

// The event that no process has the slot.
control::SlotChannel no_channel(uint32_t peer_slot) {
  return {1, peer_slot, true, ENOENT, {}, kUser};
}

// The event that the lease of the peer's slot has ended.
control::SlotChannel end_of(uint32_t peer_slot) {
  return {1, peer_slot, false, ESTALE, {}, kUser};
}

protocol::ChannelMessage ask_for_channel(uint32_t own_slot, uint32_t peer_slot) {
  return {protocol::request_header(MessageType::kAskChannel, 0), own_slot, peer_slot, 0, 0};
}

class ClientEventsTest : public ::testing::Test, private ClientEvents::Client {
 protected:
  void SetUp() override {
    publisher.begin();
    client = open(events);
  }
  static UniqueFd open(ClientEvents& events, uint16_t version = protocol::kProtocolVersion) {
    auto end = events.open(version);
    EXPECT_TRUE(end);
    return end ? std::move(*end) : UniqueFd();
  }
  void on_ask_peer(uint64_t domain, uint32_t) override { asked.push_back(domain); }
  void on_ask_channel(uint32_t own_slot, uint32_t peer_slot) override {
    channels.emplace_back(own_slot, peer_slot);
  }
  void on_end_heard(uint32_t own_slot, uint32_t peer_slot) override {
    heard.emplace_back(own_slot, peer_slot);
  }
  void on_room() override { ++rooms; }
  void on_end() override { ended = true; }
  ClientEvents::Client& events_client() { return *this; }
  // Reads the client's next event; nothing if there is none.
  std::optional<protocol::PeerMessage> read() {
    run();
    return read(client);
  }
  static std::optional<protocol::PeerMessage> read(const UniqueFd& from) {
    protocol::PeerMessage message{};
    const auto received = receive_message(from.get(), std::as_writable_bytes(std::span(&message, 1)));
    return received && received->bytes > 0 ? std::optional(message) : std::nullopt;
  }
  void say(MessageType type, uint32_t sequence) {
    ASSERT_TRUE(send_message(client.get(), protocol::bytes_of(protocol::request_header(type, sequence))));
    run();
  }
  // Runs the loop until no work is left.
  void run() {
    do {
      loop.in_next_round([] {});
      loop.run_round();
    } while (loop.has_work_for(kUser));
  }

  EventLoop loop;
  LinkTable table;
  AgentHost agent;
  LinkPublisher publisher{table, agent};
  std::vector<uint64_t> asked;
  std::vector<std::pair<uint32_t, uint32_t>> channels;  // requested channels: own slot, peer's slot
  std::vector<std::pair<uint32_t, uint32_t>> heard;     // acknowledged ends: own slot, peer's slot
  int rooms = 0;
  bool ended = false;
  ClientSockets sockets{loop, {.all = 100, .reserve = 0}, 0};
  ClientEvents events{loop, sockets, kUser, publisher, *this};
  UniqueFd client;
};

TEST_F(ClientEventsTest, AClientThatDoesNotReadCostsOneMessageOfLinks) {
  events.links_changed();
  events.links_changed();
  const auto first = read();
  events.links_changed();
  events.links_changed();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->header.type, static_cast<uint16_t>(MessageType::kLinksChanged));
  EXPECT_FALSE(read());
  say(MessageType::kLinksSeen, first->header.sequence);
  EXPECT_TRUE(read()) << "there is a newer table than it was told of";
  EXPECT_FALSE(read());
}

// A message may take its sender long (SlowUsers), and there may be thousands of clients.
TEST_F(ClientEventsTest, LinksAreSentInATurnOfTheUser) {
  events.links_changed();
  EXPECT_FALSE(read(client));
  run();
  EXPECT_TRUE(read(client));
}

TEST_F(ClientEventsTest, TellsNothingWhileTheUserPauses) {
  TimePoint time = MonotonicClock::now();
  Duration each = UserTurns::kSlow;
  const auto clock = [&] { return time += each; };
  EventLoop slow_loop(EventLoop::kPerRound, clock, clock);
  ClientSockets slow_sockets{slow_loop, {.all = 100, .reserve = 0}, 0};
  ClientEvents slow_events(slow_loop, slow_sockets, kUser, publisher, events_client());
  const UniqueFd slow_client = open(slow_events);
  for (uint32_t domain = 0; domain < 2; ++domain) {
    EXPECT_TRUE(slow_events.tell_peer(no_peer(domain), kUser));
  }
  EXPECT_FALSE(slow_events.tell_peer(no_peer(10), kUser));
  for (uint32_t domain = 0; domain < 2; ++domain) EXPECT_TRUE(read(slow_client));
  EXPECT_FALSE(read(slow_client));
  each = Duration::zero();
  time += std::chrono::minutes(1);
  EXPECT_TRUE(slow_events.tell_peer(no_peer(11), kUser));
}

TEST_F(ClientEventsTest, AnAnswerToAnotherMessageIsNone) {
  events.links_changed();
  const auto first = read();
  ASSERT_TRUE(first);
  events.links_changed();
  say(MessageType::kLinksSeen, first->header.sequence + 1);
  EXPECT_FALSE(read());
}

TEST_F(ClientEventsTest, TellsOfNoMorePeersThanTheClientHasReadOf) {
  for (uint32_t i = 0; i < protocol::kMaxPeersUnseen; ++i) {
    ASSERT_TRUE(events.tell_peer(no_peer(i), kUser));
  }
  EXPECT_FALSE(events.tell_peer(no_peer(99), kUser));
  ASSERT_TRUE(read());
  say(MessageType::kPeerSeen, 0);
  EXPECT_TRUE(events.tell_peer(no_peer(100), kUser));
}

TEST_F(ClientEventsTest, PassesOnWhatTheClientAsksAndThatItIsGone) {
  protocol::PeerMessage message{};
  message.header = protocol::request_header(MessageType::kAskPeer, 0);
  message.domain = 7;
  ASSERT_TRUE(send_message(client.get(), protocol::bytes_of(message)));
  loop.run_round();
  EXPECT_THAT(asked, ElementsAre(7u));
  EXPECT_FALSE(ended);
  client.reset();
  loop.run_round();
  EXPECT_TRUE(ended);
}

TEST_F(ClientEventsTest, TellsOfNoMoreChannelsThanTheClientHasReadOf) {
  for (uint32_t i = 0; i < protocol::kMaxChannelsUnseen; ++i) {
    ASSERT_TRUE(events.tell_channel(no_channel(i)));
  }
  EXPECT_FALSE(events.tell_channel(no_channel(99)));
  EXPECT_TRUE(events.tell_peer(no_peer(1), kUser)) << "these are counted apart";
  ASSERT_TRUE(read());
  say(MessageType::kChannelSeen, 0);
  EXPECT_TRUE(events.tell_channel(no_channel(100)));
  EXPECT_FALSE(events.tell_channel(no_channel(101)));
}

// A user whose channels take long to close, so that the client acknowledges none of them.
TEST_F(ClientEventsTest, TellsOfChannelsToOtherUsersThoughOneHasManyUnacknowledged) {
  const auto channel_to = [](uid_t user, uint32_t slot) {
    return control::SlotChannel{1, slot, true, ENOENT, {}, user};
  };
  uint32_t told = 0;
  while (told < protocol::kMaxChannelsUnseen && events.tell_channel(channel_to(kUser + 1, 5))) ++told;
  EXPECT_LT(told, protocol::kMaxChannelsUnseen);
  EXPECT_TRUE(events.tell_channel(channel_to(kUser + 2, 6)));
  EXPECT_TRUE(events.tell_channel(no_channel(7))) << "the client's own user";
  say(MessageType::kChannelSeen, 6);
  EXPECT_FALSE(events.tell_channel(channel_to(kUser + 1, 5)));
  say(MessageType::kChannelSeen, 5);
  say(MessageType::kChannelSeen, 5);
  say(MessageType::kChannelSeen, 7);
  EXPECT_TRUE(events.tell_channel(channel_to(kUser + 1, 5)));
}

// Other users decide how many channels a client is sent, and when it can acknowledge them.
TEST_F(ClientEventsTest, TellsOfEndsOfLeasesHoweverManyChannelsAreUnacknowledged) {
  for (uint32_t i = 0; i < protocol::kMaxChannelsUnseen; ++i) {
    ASSERT_TRUE(events.tell_channel(no_channel(i)));
  }
  EXPECT_TRUE(events.tell_channel(end_of(7)));
  EXPECT_FALSE(events.tell_channel(no_channel(99)));
}

TEST_F(ClientEventsTest, PassesOnWhichEndsTheClientHasHeardOf) {
  ASSERT_TRUE(events.tell_channel(no_channel(6)));
  ASSERT_TRUE(events.tell_channel(end_of(7)));
  const auto channel = read();
  const auto end = read();
  ASSERT_TRUE(channel && end);
  say(MessageType::kChannelSeen, channel->header.sequence);
  EXPECT_THAT(heard, IsEmpty());
  say(MessageType::kChannelSeen, end->header.sequence);
  EXPECT_THAT(heard, ElementsAre(std::pair(1u, 7u)));
}

TEST_F(ClientEventsTest, SaysWhenTheSocketHasRoomAgain) {
  uint32_t sent = 0;
  while (events.tell_channel(end_of(sent % 1000))) ++sent;
  events.await_room();
  run();
  EXPECT_EQ(rooms, 0) << "after " << sent << " messages";
  for (uint32_t i = 0; i < sent; ++i) EXPECT_TRUE(read(client));
  run();
  EXPECT_EQ(rooms, 1);
  EXPECT_TRUE(events.tell_channel(end_of(1)));
  run();
  EXPECT_EQ(rooms, 1) << "once";
}

TEST_F(ClientEventsTest, PassesOnWhatChannelsAreAskedFor) {
  ASSERT_TRUE(send_message(client.get(), protocol::bytes_of(ask_for_channel(3, 4))));
  ASSERT_TRUE(send_message(client.get(), protocol::bytes_of(ask_for_channel(5, 6)).first(28)));
  loop.run_round();
  EXPECT_THAT(channels, ElementsAre(std::pair(3u, 4u))) << "half a message is none";
}

TEST_F(ClientEventsTest, AClientOfAVersionWithoutChannelsIsNeverToldOfOne) {
  ClientEvents old_events(loop, sockets, kUser, publisher, events_client());
  const UniqueFd old_client = open(old_events, protocol::kFirstVersionWithChannels - 1);
  EXPECT_FALSE(old_events.tell_channel(no_channel(1)));
  EXPECT_FALSE(read(old_client));
  ASSERT_TRUE(send_message(old_client.get(), protocol::bytes_of(ask_for_channel(3, 4))));
  loop.run_round();
  EXPECT_THAT(channels, IsEmpty());
  EXPECT_FALSE(ended);
}

TEST_F(ClientEventsTest, IsSilentOnceItIsStopped) {
  events.stop();
  events.links_changed();
  EXPECT_FALSE(events.tell_peer(no_peer(1), kUser));
  EXPECT_FALSE(events.tell_channel(no_channel(1)));
  EXPECT_FALSE(read());
}

}  // namespace
}  // namespace verbena::agent
