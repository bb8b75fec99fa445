// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/net/packets.h"
#include "adapter/net/port.h"
#include "adapter/net/udp/udp_port.h"
#include "control/protocol/messages.h"
#include "wire/roce/ip_header.h"

namespace verbena::net::testing {
namespace {

using protocol::ForwardedDatagram;

constexpr uint32_t kSlot = 2;
constexpr uint16_t kSourcePort = 0xc123;

// A port of slot 2, and the agent's end of what it receives by.
class ForwardedPort : public ::testing::TestWithParam<const char*> {
 protected:
  ForwardedPort() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    agent_.reset(ends[0]);
    UdpPortOptions options;
    options.slot = kSlot;
    auto made = make_forwarded_port(UniqueFd(ends[1]), options);
    EXPECT_TRUE(made);
    if (made) port_ = std::move(*made);
  }

  ForwardedDatagram head() const {
    ForwardedDatagram head{};
    head.magic = ForwardedDatagram::kMagic;
    head.interface_index = 7;
    std::ranges::copy(path_.source.bytes, head.source);
    std::ranges::copy(path_.destination.bytes, head.destination);
    head.flow_label = path_.flow_label;
    head.source_port = kSourcePort;
    head.traffic_class = path_.traffic_class;
    head.hop_limit = path_.hop_limit;
    return head;
  }
  std::vector<std::byte> packet(uint32_t slot, uint32_t psn, uint16_t identification = 0) const {
    return encode(path_, kSourcePort, roce::kUdpPort, identification, write_middle(slot, psn, 64),
                  pattern(64, psn));
  }
  void hand(const ForwardedDatagram& head, const std::vector<std::byte>& data) {
    std::vector<std::byte> message(sizeof head);
    std::memcpy(message.data(), &head, sizeof head);
    message.insert(message.end(), data.begin(), data.end());
    ASSERT_EQ(::send(agent_.get(), message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
  }
  uint64_t dropped(DropReason reason) { return port_->counters().dropped[static_cast<size_t>(reason)]; }

  roce::Path path_ = testing::path(GetParam(), GetParam());
  UniqueFd agent_;
  std::unique_ptr<Port> port_;
  Collector collector_;
};

TEST_P(ForwardedPort, ReceivesForwardedPacketsAndHowTheyCame) {
  path_.traffic_class = 0x68;
  path_.hop_limit = 3;
  path_.flow_label = GetParam()[0] == ':' ? 0x12345 : 0;
  hand(head(), packet(kSlot, 9));
  ASSERT_EQ(port_->receive(collector_, 16), 1u);
  ASSERT_EQ(collector_.packets.size(), 1u);
  const Collector::Received& got = collector_.packets[0];
  EXPECT_EQ(got.headers.psn, roce::Psn(9));
  EXPECT_EQ(got.payload, pattern(64, 9));
  EXPECT_EQ(got.path.source, path_.source);
  EXPECT_EQ(got.path.destination, path_.destination);
  EXPECT_EQ(got.path.traffic_class, 0x68);
  EXPECT_EQ(got.path.hop_limit, 3);
  EXPECT_EQ(got.path.flow_label, path_.flow_label);
  EXPECT_EQ(got.path.interface_index, 7u);
}

TEST_P(ForwardedPort, TakesMergedDatagramsApart) {
  std::vector<std::byte> merged;
  ForwardedDatagram of_three = head();
  for (uint32_t i = 0; i < 3; ++i) {
    const auto one = packet(kSlot, i, GetParam()[0] == ':' ? uint16_t{0} : static_cast<uint16_t>(i));
    of_three.segment_bytes = static_cast<uint32_t>(one.size());
    merged.insert(merged.end(), one.begin(), one.end());
  }
  hand(of_three, merged);
  EXPECT_EQ(port_->receive(collector_, 16), 3u);
  ASSERT_EQ(collector_.packets.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
}

// The ICRC of IPv4 differs for a datagram that came in fragments; some senders cannot know it.
TEST_P(ForwardedPort, TakesBothIcrcsOfADatagramThatCameInFragments) {
  std::vector<std::byte> exact = packet(kSlot, 1);
  roce::IcrcFlow flow = roce::icrc_flow(path_, kSourcePort, roce::kUdpPort);
  flow.may_fragment = true;
  const size_t covered = exact.size() - roce::kIcrcBytes;
  roce::icrc_store(~roce::icrc_of(flow, 0x1234, ConstBytes(exact).first(covered)), &exact[covered]);
  ForwardedDatagram reassembled = head();
  reassembled.reassembled = 1;
  hand(reassembled, exact);
  hand(reassembled, packet(kSlot, 2));
  while (port_->receive(collector_, 16) > 0) continue;
  EXPECT_EQ(collector_.packets.size(), 2u);
  const bool ipv4 = GetParam()[0] != ':';
  hand(head(), exact);
  port_->receive(collector_, 16);
  EXPECT_EQ(dropped(DropReason::kBadIcrc), ipv4 ? 1u : 0u) << "it did not come so";
}

TEST_P(ForwardedPort, ChecksWhatTheSenderHasWritten) {
  hand(head(), packet(3, 0));
  auto damaged = packet(kSlot, 1);
  damaged[30] ^= std::byte{1};
  hand(head(), damaged);
  hand(head(), {});
  ForwardedDatagram elsewhere = head();
  elsewhere.destination[15] ^= 0x40;  // the ICRC covers where it went
  hand(elsewhere, packet(kSlot, 2));
  while (port_->receive(collector_, 16) > 0) {
  }
  EXPECT_TRUE(collector_.packets.empty());
  EXPECT_EQ(dropped(DropReason::kForeignSlot), 1u);
  EXPECT_EQ(dropped(DropReason::kBadIcrc), 2u);
  EXPECT_EQ(dropped(DropReason::kTruncated), 1u);
}

TEST_P(ForwardedPort, ReadsSeveralAtATimeWhileSmallOnesKeepComing) {
  for (uint32_t i = 0; i < 40; ++i) hand(head(), packet(kSlot, i));
  for (int calls = 0; collector_.packets.size() < 40 && calls < 20; ++calls) port_->receive(collector_, 16);
  ASSERT_EQ(collector_.packets.size(), 40u);
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
}

// A descriptor that is always readable would never let its thread sleep.
TEST_P(ForwardedPort, IsSilentOnceNobodyHandsAnythingOver) {
  const int fd = port_->receive_fd();
  hand(head(), packet(kSlot, 1));
  agent_.reset();
  EXPECT_EQ(port_->receive(collector_, 16), 1u);
  EXPECT_EQ(port_->receive(collector_, 16), 0u);
  EXPECT_EQ(port_->receive_fd(), fd);
  pollfd entry{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  EXPECT_EQ(port_->receive(collector_, 16), 0u);
}

// From ports of its own, so that the other end takes it for any other sender.
TEST_P(ForwardedPort, SendsAsAnyOther) {
  auto socket = open_receive_socket(0);
  ASSERT_TRUE(socket);
  sockaddr_in6 name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&name), &length), 0);
  UdpPortOptions options;
  options.slot = 1;
  auto other = UdpPort::create(std::move(*socket), options);
  ASSERT_TRUE(other);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  agent_.reset(ends[0]);
  options.slot = kSlot;
  options.port = ntohs(name.sin6_port);
  auto made = make_forwarded_port(UniqueFd(ends[1]), options);
  ASSERT_TRUE(made);
  ASSERT_EQ(testing::send(**made, path_, write_middle(1, 5, 64), pattern(64, 5)),
            transport::SendStatus::kSent);
  ASSERT_TRUE((*made)->flush());
  ASSERT_TRUE(collector_.receive(**other, 1));
  EXPECT_EQ(collector_.packets[0].payload, pattern(64, 5));
}

INSTANTIATE_TEST_SUITE_P(Families, ForwardedPort, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& family) { return family.index == 0 ? "IPv4" : "IPv6"; });

TEST(ForwardedPortSocket, MustKeepMessagesApart) {
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd other(ends[0]);
    const auto made = make_forwarded_port(UniqueFd(ends[1]), {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, EINVAL);
  }
}

TEST(ForwardedPortSocket, IsWhatThePortFactoryMakesAPortOf) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd agent(ends[0]);
  PortCounters counters;
  auto ports = open_ports({.slot = 3, .udp_socket = {}, .is_forwarded = UniqueFd(ends[1])}, counters);
  ASSERT_TRUE(ports);
  ASSERT_EQ(ports->size(), 1u);
  char byte = 7;
  ASSERT_EQ(::send(agent.get(), &byte, 1, 0), 1);
  EXPECT_EQ(::recv(ports->front()->receive_fd(), &byte, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(&ports->front()->counters(), &counters);
}

}  // namespace
}  // namespace verbena::net::testing
