// SPDX-License-Identifier: Apache-2.0
// Two hosts: packets from some addresses of one reach a guarded socket of the other, packets from others do
// not.
#include "adapter/net/udp/peer_filter.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "adapter/net/net_namespace.h"
#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/udp_port.h"

namespace verbena::net {
namespace {

using testing::InNamespace;
using testing::run;

roce::Address address(std::string_view text) {
  return roce::parse_prefix(text).value().network;
}

roce::Path to_address(const roce::Address& destination) {
  roce::Path path;
  path.destination = destination;
  return path;
}

std::vector<roce::Prefix> networks(const std::vector<std::string>& texts) {
  std::vector<roce::Prefix> parsed;
  for (const std::string& text : texts) parsed.push_back(roce::parse_prefix(text).value());
  return parsed;
}

class PeerFilter : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::can_make_namespaces()) GTEST_SKIP() << "needs root";
    stay_on_one_processor();
    hosts_ = std::make_unique<testing::TwoHosts>();
    {
      const InNamespace there(hosts_->a);
      for (const char* more :
           {"10.47.91.9/24", "fd47:91::9/64 nodad", "10.47.92.1/24", "fd47:92::1/64 nodad"}) {
        run(std::string("ip addr add ") + more + " dev veth-a");
      }
      run("ip route add 10.47.95.0/24 via 10.47.91.2");
    }
    const InNamespace here(hosts_->b);
    for (const char* back : {"10.47.92.0/24", "fd47:92::/64"})
      run(std::string("ip route add ") + back + " dev veth-b");
    run("ip link add other type veth peer name another");
    run("ip addr add 10.47.95.2/24 dev other");
    run("ip link set other up");
    interface_index_ = if_nametoindex("veth-b");
    auto socket = open_receive_socket(roce::kUdpPort);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
  }

  // On one processor packets do not overtake each other.
  static void stay_on_one_processor() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }

  void guard(std::vector<GuardedLink> links) {
    const auto filter = peer_filter(links);
    const sock_fprog program{static_cast<unsigned short>(filter.size()),
                             const_cast<sock_filter*>(filter.data())};
    ASSERT_EQ(setsockopt(socket_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  }
  GuardedLink veth(const std::vector<std::string>& peers) const {
    return {interface_index_, {address("10.47.91.2"), address("fd47:91::2")}, networks(peers)};
  }

  static void send(std::string_view from, std::string_view to, char what) {
    const SocketAddress source = destination_of(to_address(address(from)), 0);
    const SocketAddress destination = destination_of(to_address(address(to)), roce::kUdpPort);
    const UniqueFd socket(::socket(source.generic.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(socket.get(), &source.generic, source.length()), 0) << from;
    ASSERT_EQ(sendto(socket.get(), &what, 1, 0, &destination.generic, destination.length()), 1) << to;
  }

  // Whether a packet between these addresses arrives before a later one that certainly does.
  bool hears(std::string_view from, std::string_view to) {
    {
      const InNamespace there(hosts_->a);
      send(from, to, '?');
      send("10.47.91.1", "10.47.91.2", '.');
    }
    for (bool heard = false;;) {
      pollfd readable{socket_.get(), POLLIN, 0};
      char what = 0;
      if (poll(&readable, 1, 10000) != 1 || recv(socket_.get(), &what, 1, 0) != 1) {
        ADD_FAILURE() << "10.47.91.1 is not heard";
        return false;
      }
      if (what == '.') return heard;
      heard = true;
    }
  }

  std::unique_ptr<testing::TwoHosts> hosts_;
  uint32_t interface_index_ = 0;
  UniqueFd socket_;
};

TEST_F(PeerFilter, LetsPeersThroughAndNobodyElse) {
  guard({veth({"10.47.91.1", "fd47:92::/64"})});
  EXPECT_TRUE(hears("10.47.91.1", "10.47.91.2"));
  EXPECT_FALSE(hears("10.47.91.9", "10.47.91.2"));
  EXPECT_FALSE(hears("10.47.92.1", "10.47.91.2"));
  EXPECT_TRUE(hears("fd47:92::1", "fd47:91::2"));
  EXPECT_FALSE(hears("fd47:91::1", "fd47:91::2"));
  EXPECT_FALSE(hears("fd47:91::9", "fd47:91::2"));
}

TEST_F(PeerFilter, KnowsNetworksByEachOfTheirBits) {
  guard({veth({"10.47.91.0/29", "fd47:91::/125"})});  // .0 to .7
  EXPECT_TRUE(hears("10.47.91.1", "10.47.91.2"));
  EXPECT_FALSE(hears("10.47.91.9", "10.47.91.2"));
  EXPECT_TRUE(hears("fd47:91::1", "fd47:91::2"));
  EXPECT_FALSE(hears("fd47:91::9", "fd47:91::2"));
}

TEST_F(PeerFilter, LetsAllOfOneKindOfIpThroughAndNoneOfTheOther) {
  guard({veth({"0.0.0.0/0"})});
  EXPECT_TRUE(hears("10.47.92.1", "10.47.91.2"));
  EXPECT_FALSE(hears("fd47:91::1", "fd47:91::2"));
}

TEST_F(PeerFilter, ConcernsWhatComesForAnotherAddressByTheLinksDevice) {
  guard({veth({"10.47.91.1"})});
  EXPECT_TRUE(hears("10.47.91.1", "10.47.95.2"));
  EXPECT_FALSE(hears("10.47.91.9", "10.47.95.2"));
}

TEST_F(PeerFilter, ConcernsWhatComesForTheLinksAddressByAnotherDevice) {
  guard({{interface_index_ + 100, {address("10.47.95.2")}, networks({"10.47.92.0/24"})}});
  EXPECT_TRUE(hears("10.47.91.9", "10.47.91.2"));
  EXPECT_FALSE(hears("10.47.91.9", "10.47.95.2"));
  EXPECT_TRUE(hears("10.47.92.1", "10.47.95.2"));
}

TEST_F(PeerFilter, AsksEachLinkThatAPacketConcerns) {
  guard({veth({"10.47.91.0/24"}),
         {interface_index_ + 100, {address("10.47.95.2")}, networks({"10.47.91.9", "10.47.92.1"})}});
  EXPECT_TRUE(hears("10.47.91.9", "10.47.95.2"));
  EXPECT_FALSE(hears("10.47.91.1", "10.47.95.2"));
  EXPECT_FALSE(hears("10.47.92.1", "10.47.95.2"));
}

TEST_F(PeerFilter, LetsThisHostsOwnPacketsThrough) {
  guard({veth({"10.47.92.0/24"})});
  const InNamespace here(hosts_->b);
  send("10.47.91.2", "10.47.91.2", '!');
  send("fd47:91::2", "fd47:91::2", '!');
  for (int i = 0; i < 2; ++i) {
    pollfd readable{socket_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 10000), 1);
    char what = 0;
    EXPECT_EQ(recv(socket_.get(), &what, 1, 0), 1);
  }
}

TEST_F(PeerFilter, IsTakenByTheKernelForAsManyLinksAsItMayHave) {
  std::vector<GuardedLink> links;
  for (uint32_t i = 0; i < 8; ++i) {
    links.push_back({interface_index_ + 100 + i, std::vector<roce::Address>(8, address("fd47:99::1")),
                     std::vector<roce::Prefix>(20, networks({"fd47:98::1"}).front())});
  }
  links.push_back(veth({"10.47.91.1"}));
  guard(links);
  EXPECT_TRUE(hears("10.47.91.1", "10.47.91.2"));
  EXPECT_FALSE(hears("10.47.91.9", "10.47.91.2"));
}

TEST(PeerFilterProgram, IsNoneWhereNoLinkIsGuarded) {
  EXPECT_TRUE(peer_filter({}).empty());
}

TEST(PeerFilterProgram, DropsAllFromOutsideWhenThereIsMoreThanTheKernelTakes) {
  const GuardedLink link{2, {}, std::vector<roce::Prefix>(20, *roce::parse_prefix("fd00::1"))};
  const auto program = peer_filter(std::vector<GuardedLink>(100, link));
  ASSERT_FALSE(program.empty());
  EXPECT_LT(program.size(), 10u);
}

}  // namespace
}  // namespace verbena::net
