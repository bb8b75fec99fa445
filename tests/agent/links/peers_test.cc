// SPDX-License-Identifier: Apache-2.0
// A link that accepts packets from listed hosts only: programs on one host, and packets with source addresses
// of another.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

#include "adapter/net/net_namespace.h"
#include "adapter/net/udp/socket_address.h"
#include "agent/agent_process.h"
#include "agent/sessions/other_users.h"
#include "agent/slots/slot_packets.h"
#include "control/client/client.h"
#include "control/client/command_client.h"

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::Slot;
using net::testing::InNamespace;
using test::AgentProcess;
using test::received_tags;
using Tags = std::vector<uint32_t>;

const control::ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};
constexpr std::string_view kLink = "rxe_veth-b";
constexpr std::string_view kPeer = "10.47.91.1";
constexpr std::string_view kStranger = "10.47.91.9";
constexpr std::string_view kGroup = "239.1.2.3";

roce::Address address(std::string_view text) {
  return roce::parse_prefix(text).value().network;
}

roce::Path to_address(const roce::Address& destination) {
  roce::Path path;
  path.destination = destination;
  return path;
}

class Peers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::testing::can_make_namespaces()) GTEST_SKIP() << "needs root";
    stay_on_one_processor();
    hosts_ = std::make_unique<net::testing::TwoHosts>();
    {
      const InNamespace there(hosts_->a);
      net::testing::run("ip addr add 10.47.91.9/24 dev veth-a");
    }
    here_ = std::make_unique<InNamespace>(hosts_->b);
    net::testing::run("ip link set lo up");
    agent_.emplace();
  }

  // On one processor packets do not overtake each other.
  static void stay_on_one_processor() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }

  static void set_peers(std::vector<roce::Prefix> peers) {
    auto admin = Admin::connect(kOnlyRunning);
    ASSERT_TRUE(admin) << admin.error().text;
    const auto set = (*admin)->set_peers(kLink, peers);
    ASSERT_TRUE(set) << set.error().text;
  }
  static std::vector<roce::Prefix> peers() {
    auto admin = Admin::connect(kOnlyRunning);
    const auto status = (*admin)->status();
    for (const control::LinkStatus& one : status->links) {
      if (one.link.name == kLink) return one.link.peers;
    }
    ADD_FAILURE() << "there is no link " << kLink;
    return {};
  }

  void send(std::string_view from, std::string_view to, uint32_t slot, uint32_t tag) {
    const InNamespace there(hosts_->a);
    const auto source = net::destination_of(to_address(address(from)), 0);
    const auto destination = net::destination_of(to_address(address(to)), roce::kUdpPort);
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const ip_mreqn by{{}, {}, static_cast<int>(::if_nametoindex("veth-a"))};
    ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
    std::array<uint8_t, 16> packet{};
    store_be24(&packet[5], roce::Qpn::in_slot(slot, 7).value());
    store_be(&packet[12], tag);
    ASSERT_EQ(::bind(socket.get(), &source.generic, source.length()), 0);
    ASSERT_EQ(
        ::sendto(socket.get(), packet.data(), packet.size(), 0, &destination.generic, destination.length()),
        16);
  }
  // Sends a packet of a stranger and then one of a peer. Returns the tags of those that arrive.
  Tags heard(const Slot& slot) {
    send(kStranger, "10.47.91.2", slot.index, 9);
    send(kPeer, "10.47.91.2", slot.index, 1);
    return received_tags(slot);
  }

  std::unique_ptr<net::testing::TwoHosts> hosts_;
  std::unique_ptr<InNamespace> here_;
  std::optional<AgentProcess> agent_;
};

TEST_F(Peers, ReachProgramsAndStrangersDoNot) {
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto before = (*client)->take_slot();
  ASSERT_TRUE(before);
  EXPECT_EQ(heard(*before), (Tags{9, 1}));
  set_peers({{address(kPeer), 128}});
  EXPECT_EQ(heard(*before), Tags{1});
  const auto after = (*client)->take_slot();
  ASSERT_TRUE(after);
  EXPECT_EQ(heard(*after), Tags{1});
  set_peers({});
  EXPECT_EQ(heard(*before), (Tags{9, 1}));
  EXPECT_EQ(heard(*after), (Tags{9, 1}));
}

TEST_F(Peers, AreKeptWhenTheAgentIsKilledAndByTheNext) {
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  const std::vector<roce::Prefix> wanted = {{address(kPeer), 128}};
  set_peers(wanted);
  agent_->stop(SIGKILL);
  EXPECT_EQ(heard(*slot), Tags{1});
  agent_.emplace();
  ASSERT_TRUE((*client)->links());  // the client has brought the takeover state
  EXPECT_EQ(peers(), wanted);
  EXPECT_EQ(heard(*slot), Tags{1});
  set_peers({});
  EXPECT_EQ(heard(*slot), (Tags{9, 1}));
}

TEST_F(Peers, AreTheOnlyOnesThatAMulticastGroupHears) {
  set_peers({{address(kPeer), 128}});
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto links = (*client)->links();
  ASSERT_TRUE(links);
  const auto link = std::ranges::find(*links, kLink, &control::Link::name);
  ASSERT_NE(link, links->end());
  Slot member;
  auto joined = (*client)->join_group(link->device_index, address(kGroup));
  ASSERT_TRUE(joined);
  member.socket = std::move(*joined);
  // The program cannot remove the filter of the peers.
  const int unused = 0;
  EXPECT_NE(setsockopt(member.socket.get(), SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused), 0);
  EXPECT_EQ(errno, EPERM);
  send(kStranger, kGroup, 0, 9);
  send(kPeer, kGroup, 0, 1);
  EXPECT_EQ(received_tags(member), Tags{1});
}

TEST_F(Peers, AreNotForAnotherUserToSay) {
  EXPECT_EQ(test::as_user(65534,
                          [] {
                            auto admin = Admin::connect(kOnlyRunning);
                            if (!admin) return 1;
                            const auto set = (*admin)->set_peers(kLink, {});
                            return !set && set.error().code == EPERM ? 0 : 2;
                          }),
            0);
}

}  // namespace
}  // namespace verbena
