// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/route_check.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/net/net_namespace.h"
#include "adapter/net/packets.h"
#include "base/lingering_socket.h"
#include "base/socket_option.h"

namespace {

thread_local int questions_about_devices = 0;  // of this thread, by rtnetlink
thread_local int bound_sockets = 0;            // likewise, successfully or not

}  // namespace

extern "C" ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  if (bytes >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    std::memcpy(&header, data, sizeof header);
    if (header.nlmsg_len == bytes && header.nlmsg_type == RTM_GETLINK) ++questions_about_devices;
  }
  return ::syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
}

extern "C" int bind(int fd, const sockaddr* name, socklen_t length) {
  ++bound_sockets;
  return static_cast<int>(::syscall(SYS_bind, fd, name, length));
}

namespace verbena::net::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

// The timeout of waits that must end earlier.
constexpr Duration kEnough = minutes(1);
constexpr Duration kShort = milliseconds(50);

struct Addresses {
  const char* name;
  const char* own;
  const char* peer;
  const char* nobody;     // an address of the same network that no host has
  const char* elsewhere;  // an address that no route leads to
};

// Two hosts; the test's thread is in the first one's namespace.
class RouteCheck : public ::testing::TestWithParam<Addresses> {
 protected:
  void SetUp() override {
    if (!can_make_namespaces()) GTEST_SKIP() << "network namespaces need root";
    hosts_ = std::make_unique<TwoHosts>(1500);
    here_ = std::make_unique<InNamespace>(hosts_->a);
  }
  int check(const char* destination, Duration patience) {
    const auto checked = check_route(path(GetParam().own, destination), patience);
    return checked ? 0 : checked.error().code;
  }

  static std::optional<bool> waits(const char* destination) {
    return waits_for_neighbour(path(GetParam().own, destination));
  }

  std::unique_ptr<TwoHosts> hosts_;
  std::unique_ptr<InNamespace> here_;
};

TEST_P(RouteCheck, FindsANeighbourThatAnswers) {
  EXPECT_EQ(check(GetParam().peer, kEnough), 0);
  // The neighbor is known now.
  EXPECT_EQ(check(GetParam().peer, Duration(0)), 0);
}

TEST_P(RouteCheck, ANeighbourThatDoesNotAnswerIsATimeout) {
  const TimePoint began = MonotonicClock::now();
  EXPECT_EQ(check(GetParam().nobody, kShort), ETIMEDOUT);
  EXPECT_GE(MonotonicClock::now() - began, kShort);
}

TEST_P(RouteCheck, WithoutPatienceNobodyLooksForANeighbour) {
  EXPECT_EQ(check(GetParam().nobody, Duration(0)), 0);
  // A neighbor that the kernel has tried to resolve without success.
  run(std::string("ip neigh add ") + GetParam().nobody + " dev veth-a nud failed");
  EXPECT_EQ(check(GetParam().nobody, Duration(0)), ETIMEDOUT);
}

TEST_P(RouteCheck, WithTheShortestPatienceTheSearchBeginsAndNobodyWaits) {
  constexpr Duration kShortest(1);
  EXPECT_EQ(check(GetParam().nobody, kShortest), ETIMEDOUT);
  EXPECT_EQ(check(GetParam().nobody, Duration(0)), 0) << "the search is not over";
  while (check(GetParam().peer, kShortest) != 0) std::this_thread::yield();
}

TEST_P(RouteCheck, WaitsForANeighbourThatComes) {
  std::thread comes([&] {
    const InNamespace there(hosts_->b);
    const std::string bits =
        std::string(GetParam().nobody).find(':') == std::string::npos ? "/24" : "/64 nodad";
    run(std::string("ip addr add ") + GetParam().nobody + bits + " dev veth-b");
  });
  EXPECT_EQ(check(GetParam().nobody, kEnough), 0);
  comes.join();
}

TEST_P(RouteCheck, ARouterThatDoesNotAnswerIsATimeout) {
  run(std::string("ip route add ") + GetParam().elsewhere + " via " + GetParam().nobody);
  EXPECT_EQ(check(GetParam().elsewhere, kShort), ETIMEDOUT);
  run(std::string("ip route replace ") + GetParam().elsewhere + " via " + GetParam().peer);
  EXPECT_EQ(check(GetParam().elsewhere, kEnough), 0);
}

TEST_P(RouteCheck, WithoutARouteThereIsNothingToWaitFor) {
  EXPECT_EQ(check(GetParam().elsewhere, kEnough), ENETUNREACH);
}

TEST_P(RouteCheck, AnAddressOfThisHostNeedsNoNeighbour) {
  EXPECT_EQ(check(GetParam().own, kEnough), 0);
}

// RTM_GETLINK waits for a lock that any user with a user namespace can hold for seconds.
TEST_P(RouteCheck, AsksNothingThatWaitsForTheLockOfNetworkDevices) {
  questions_about_devices = 0;
  EXPECT_EQ(check(GetParam().nobody, kShort), ETIMEDOUT);
  EXPECT_EQ(questions_about_devices, 0);
}

TEST_P(RouteCheck, ADeviceWithoutArpHasNoNeighboursToWaitFor) {
  run("ip tuntap add dev tun0 mode tun && ip link set tun0 up");
  run(std::string("ip route add ") + GetParam().elsewhere + " dev tun0");
  EXPECT_EQ(check(GetParam().elsewhere, kEnough), 0);
}

TEST_P(RouteCheck, TellsWhetherPacketsWaitForANeighbour) {
  EXPECT_EQ(waits(GetParam().nobody), true);
  EXPECT_EQ(waits(GetParam().nobody), true);
  EXPECT_EQ(waits(GetParam().own), false);
  EXPECT_EQ(waits(GetParam().elsewhere), false) << "no route";
  run(std::string("ip route add ") + GetParam().elsewhere + " via " + GetParam().nobody);
  EXPECT_EQ(waits(GetParam().elsewhere), true);
  ASSERT_EQ(check(GetParam().peer, kEnough), 0);
  EXPECT_EQ(waits(GetParam().peer), false);
  // A slow device keeps packets, too, but they wait for no neighbour.
  run("tc qdisc add dev veth-a root tbf rate 8kbit burst 2kb limit 100mb");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(waits(GetParam().peer), false);
}

TEST_P(RouteCheck, TellsWhetherPacketsWaitWhereAFirewallRefusesTheDiscardPort) {
  run("nft add table inet t && nft add chain inet t out '{ type filter hook output priority 0; }'");
  run("nft add rule inet t out udp dport 9 reject");
  EXPECT_EQ(waits(GetParam().nobody), true);
  run("nft add rule inet t out udp dport 4791 reject");
  EXPECT_EQ(waits(GetParam().nobody), std::nullopt);
}

TEST_P(RouteCheck, WithoutAFreePortOnlyASocketOfNeighbourSearchesTellsWhetherPacketsWait) {
  NeighbourSearches searches;
  const TakenPorts taken = TakenPorts::ephemeral();
  EXPECT_EQ(waits(GetParam().nobody), std::nullopt);
  EXPECT_EQ(searches.waits(path(GetParam().own, GetParam().nobody)), true);
}

TEST_P(RouteCheck, SearchesTellAsMuchWhileEarlierDatagramsWait) {
  NeighbourSearches searches;
  ASSERT_EQ(check(GetParam().peer, kEnough), 0);
  const TakenPorts taken = TakenPorts::ephemeral();
  const roce::Path to_peer = path(GetParam().own, GetParam().peer);
  const roce::Path to_nobody = path(GetParam().own, GetParam().nobody);
  // More than the queue of a neighbour takes.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(searches.waits(to_nobody), true) << i;
    ASSERT_EQ(searches.waits(to_peer), false) << i;
  }
  EXPECT_EQ(searches.waits(path(GetParam().own, GetParam().own)), false);
  EXPECT_EQ(searches.waits(path(GetParam().own, GetParam().elsewhere)), false) << "no route";
}

TEST_P(RouteCheck, TellsWhetherANeighbourIsKnown) {
  NeighbourSearches searches;
  const auto is_known = [&](const char* neighbour) {
    return searches.is_known(::if_nametoindex("veth-a"), path(GetParam().own, neighbour).destination);
  };
  EXPECT_EQ(is_known(GetParam().nobody), false);
  EXPECT_EQ(is_known(GetParam().nobody), false);
  // The first question has made the kernel look for the neighbour.
  while (is_known(GetParam().peer) == false) std::this_thread::yield();
  EXPECT_EQ(is_known(GetParam().peer), true);
  run("ip link set veth-a down");
  EXPECT_EQ(is_known(GetParam().peer), std::nullopt) << "nothing can be sent";
}

TEST_P(RouteCheck, ASearchNeedsNoFreePort) {
  NeighbourSearches searches;
  const TakenPorts taken = TakenPorts::ephemeral();
  const roce::Address nobody = path(GetParam().own, GetParam().nobody).destination;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(searches.search(::if_nametoindex("veth-a"), nobody), 0);
}

// Each search would take as long as the kernel needs to find out that no port is free.
TEST_P(RouteCheck, SearchesThatFoundNoPortTryAgainAfterAPause) {
  static TimePoint now;
  now = TimePoint(minutes(1));
  const roce::Address nobody = path(GetParam().own, GetParam().nobody).destination;
  std::unique_ptr<TakenPorts> taken(new TakenPorts(TakenPorts::ephemeral()));
  NeighbourSearches searches([] { return now; });
  const auto search = [&] { return searches.search(::if_nametoindex("veth-a"), nobody); };
  EXPECT_EQ(search(), EADDRINUSE);
  EXPECT_EQ(searches.waits(path(GetParam().own, GetParam().nobody)), std::nullopt);
  taken.reset();
  EXPECT_EQ(search(), EADDRINUSE);
  now += minutes(1);
  EXPECT_EQ(search(), 0);
}

// Where ports are scarce, each takes milliseconds.
TEST_P(RouteCheck, SearchesBindNoSocketAfterTheirBeginning) {
  bound_sockets = 0;
  NeighbourSearches searches;
  const size_t before = test::open_descriptors();
  const roce::Address nobody = path(GetParam().own, GetParam().nobody).destination;
  ASSERT_GE(bound_sockets, 2 * static_cast<int>(NeighbourSearches::kSockets));
  bound_sockets = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(searches.search(::if_nametoindex("veth-a"), nobody), 0);
    EXPECT_EQ(searches.waits(path(GetParam().own, GetParam().nobody)), true);
  }
  EXPECT_EQ(bound_sockets, 0);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_P(RouteCheck, AFirewallThatRefusesTheDiscardPortDoesNotStopASearch) {
  run("nft add table inet t && nft add chain inet t out '{ type filter hook output priority 0; }'");
  run("nft add rule inet t out udp dport 9 reject");
  NeighbourSearches searches;
  const roce::Address nobody = path(GetParam().own, GetParam().nobody).destination;
  const auto is_known = [&] { return searches.is_known(::if_nametoindex("veth-a"), nobody); };
  EXPECT_EQ(is_known(), false);
  run("nft add rule inet t out udp dport 4791 reject");
  EXPECT_EQ(is_known(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(
    Veth, RouteCheck,
    ::testing::Values(Addresses{"Ipv4", "10.47.91.1", "10.47.91.2", "10.47.91.77", "203.0.113.5"},
                      Addresses{"Ipv6", "fd47:91::1", "fd47:91::2", "fd47:91::77", "2001:db8::1"}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace verbena::net::testing
