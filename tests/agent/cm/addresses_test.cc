// SPDX-License-Identifier: Apache-2.0
// The agent's answers to programs that bind, listen and resolve addresses.
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/cm/program.h"
#include "agent/network_namespace.h"
#include "base/time.h"
#include "control/client/command_client.h"

namespace verbena {
namespace {

using protocol::CmEvent;
using test::address;
using test::CmProgram;
using test::eventually;
using test::port_of;
using test::shell;

constexpr uint16_t kPort = 7471;

class CmAddresses : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(
        shell("ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 && "
              "ip addr add 2001:db8::1/64 dev v0 nodad && ip link set v0 up && ip link set v1 up && "
              "sysctl -qw net.ipv4.ip_local_port_range='40000 40099'"));
    agent_.emplace();
    const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
    ASSERT_TRUE(admin && (*admin)->add_link("rxe_lo", "lo"));
    program_.emplace();
    ASSERT_TRUE(program_->connected());
  }
  // Binds a new identifier. Returns 0 or the error.
  int bind(const protocol::CmAddress& to, uint16_t port_space = RDMA_PS_TCP) {
    return program_->bind(program_->create(port_space), to);
  }

  std::optional<test::AgentProcess> agent_;
  std::optional<CmProgram> program_;
};

TEST_F(CmAddresses, BindNamesTheDevice) {
  ASSERT_EQ(bind(address("10.9.0.1", kPort)), 0);
  EXPECT_STREQ(program_->route().link, "rxe_v0");
  EXPECT_EQ(port_of(program_->route()), kPort);
  EXPECT_EQ(program_->route().path_mtu, IBV_MTU_1024);
  ASSERT_EQ(bind(address("2001:db8::1", kPort)), 0);
  EXPECT_STREQ(program_->route().link, "rxe_v0");
  ASSERT_EQ(bind(address("0.0.0.0", kPort + 1)), 0);
  EXPECT_STREQ(program_->route().link, "");
}

// As in the kernel's rdma_cm (cma_any_addr()). libfabric queries the device of 127.0.0.1, and uses all
// devices if there is none.
TEST_F(CmAddresses, LoopbackNamesNoDevice) {
  ASSERT_EQ(bind(address("127.0.0.1", kPort)), 0);
  EXPECT_STREQ(program_->route().link, "");
  EXPECT_EQ(std::memcmp(program_->route().source.address, address("127.0.0.1").address, 4), 0);
  EXPECT_EQ(bind(address("10.9.0.1", kPort)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(address("127.0.0.2", kPort)), EADDRNOTAVAIL);
  ASSERT_EQ(bind(address("::1", kPort + 1)), 0);
  EXPECT_STREQ(program_->route().link, "");
}

// A program bound to 127.0.0.1 is not limited to the loopback link: it reaches other links.
TEST_F(CmAddresses, ResolvesFromLoopbackToAnotherLink) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->bind(id, address("127.0.0.1", kPort)), 0);
  ASSERT_EQ(program_->resolve_address(id, address("10.9.0.1", kPort)), 0);
  const CmEvent resolved = program_->event();
  EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED));
  EXPECT_STREQ(resolved.route.link, "rxe_v0");
}

TEST_F(CmAddresses, BindChoosesAnEphemeralPort) {
  ASSERT_EQ(bind(address("0.0.0.0")), 0);
  EXPECT_GE(port_of(program_->route()), 40000);
  EXPECT_LE(port_of(program_->route()), 40099);
}

TEST_F(CmAddresses, BindRefusesAsTheKernelDoes) {
  ASSERT_EQ(bind(address("10.9.0.1", kPort)), 0);
  EXPECT_EQ(bind(address("10.9.0.1", kPort)), EADDRINUSE);
  EXPECT_EQ(bind(address("0.0.0.0", kPort)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(address("10.9.0.1", kPort), RDMA_PS_UDP), 0);  // a different port space
  EXPECT_EQ(bind(address("10.9.0.77", kPort)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(address("fe80::1", kPort)), EINVAL);  // link-local without an interface
  protocol::CmAddress strange = address("10.9.0.1");
  strange.family = AF_UNIX;
  EXPECT_EQ(bind(strange), EAFNOSUPPORT);
  const uint32_t id = program_->create();
  EXPECT_EQ(program_->bind(id, address("0.0.0.0", kPort + 1)), 0);
  EXPECT_EQ(program_->bind(id, address("0.0.0.0", kPort + 2)), EINVAL);  // already bound
  EXPECT_EQ(program_->bind(4711, address("0.0.0.0")), ENOENT);
}

TEST_F(CmAddresses, APortIsFreeAgainWhenItsIdentifierIsDestroyed) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->bind(id, address("0.0.0.0", kPort)), 0);
  EXPECT_EQ(bind(address("0.0.0.0", kPort)), EADDRNOTAVAIL);
  EXPECT_EQ(program_->destroy(id), 0);
  EXPECT_EQ(bind(address("0.0.0.0", kPort)), 0);
}

TEST_F(CmAddresses, OptionsMakePortsShareable) {
  const uint32_t one = program_->create();
  const uint32_t two = program_->create();
  for (const uint32_t id : {one, two}) {
    ASSERT_EQ(program_->set_option(id, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    ASSERT_EQ(program_->bind(id, address("0.0.0.0", kPort)), 0);
  }
  EXPECT_EQ(program_->listen(one), EADDRNOTAVAIL);
  ASSERT_EQ(program_->destroy(two), 0);
  EXPECT_EQ(program_->listen(one), 0);
  const uint32_t ipv6 = program_->create();
  ASSERT_EQ(program_->set_option(ipv6, RDMA_OPTION_ID_AFONLY, 1), 0);
  EXPECT_EQ(program_->bind(ipv6, address("::", kPort)), 0);
}

TEST_F(CmAddresses, ListenBindsWhatIsUnbound) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->listen(id), 0);
  EXPECT_GE(port_of(program_->route()), 40000);
  EXPECT_EQ(program_->listen(id), EINVAL);
}

TEST_F(CmAddresses, LowPortsAreForThePrivileged) {
  if (::getuid() != 0 || ::setegid(0) != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(bind(address("0.0.0.0", 1023)), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(99);
    CmProgram other;
    if (!other.connected()) ::_exit(98);
    if (other.bind(other.create(), address("0.0.0.0", 1022)) != EACCES) ::_exit(1);
    ::_exit(other.bind(other.create(), address("0.0.0.0", 1024)) == 0 ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CmAddresses, ResolvesAnAddressOfThisHost) {
  for (const char* host : {"127.0.0.1", "10.9.0.1", "::1", "2001:db8::1"}) {
    const uint32_t id = program_->create();
    ASSERT_EQ(program_->resolve_address(id, address(host, kPort)), 0) << host;
    const CmEvent resolved = program_->event();
    EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED)) << host;
    EXPECT_EQ(resolved.id, id);
    const bool is_loopback = std::string(host) == "127.0.0.1" || std::string(host) == "::1";
    EXPECT_STREQ(resolved.route.link, is_loopback ? "rxe_lo" : "rxe_v0") << host;
    EXPECT_EQ(std::memcmp(resolved.route.source_gid, resolved.route.destination_gid, 16), 0) << host;
    EXPECT_EQ(std::memcmp(resolved.route.source.address, address(host).address, 16), 0) << host;
    EXPECT_NE(resolved.route.source.port, 0);
    EXPECT_EQ(resolved.route.hop_limit, 64);

    ASSERT_EQ(program_->resolve_route(id), 0);
    const CmEvent routed = program_->event();
    EXPECT_EQ(routed.type, static_cast<uint32_t>(RDMA_CM_EVENT_ROUTE_RESOLVED));
    EXPECT_EQ(routed.route.packet_life_time, 16);
    EXPECT_EQ(routed.route.flow_label, (31u * ntohs(routed.route.source.port) + kPort) & 0xfffff);
    EXPECT_EQ(program_->resolve_route(id), EINVAL);  // only once
  }
}

// Loopback gets no link of its own where another link is up.
TEST_F(CmAddresses, ResolvesLoopbackByAnotherLinkWhereItHasNone) {
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(admin && (*admin)->delete_link("rxe_lo"));
  for (const char* host : {"127.0.0.1", "::1", "0.0.0.0"}) {
    const uint32_t id = program_->create();
    ASSERT_EQ(program_->resolve_address(id, address(host, kPort)), 0) << host;
    const CmEvent resolved = program_->event();
    EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED)) << host;
    EXPECT_STREQ(resolved.route.link, "rxe_v0") << host;
  }
}

TEST_F(CmAddresses, ResolvesTheWildcardToThisHost) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("0.0.0.0", kPort)), 0);
  const CmEvent resolved = program_->event();
  EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED));
  EXPECT_STREQ(resolved.route.link, "rxe_lo");
  EXPECT_EQ(ntohs(resolved.route.destination.port), kPort);
}

TEST_F(CmAddresses, OptionsShapeTheRoute) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->set_option(id, RDMA_OPTION_ID_TOS, 0x28), 0);
  ASSERT_EQ(program_->set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 14), 0);
  EXPECT_EQ(program_->set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 32), EINVAL);
  EXPECT_EQ(program_->set_option(id, 77, 1), ENOSYS);
  ASSERT_EQ(program_->resolve_address(id, address("127.0.0.1", kPort)), 0);
  program_->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(program_->resolve_route(id), 0);
  const CmEvent routed = program_->event();
  EXPECT_EQ(routed.route.traffic_class, 0x28);
  EXPECT_EQ(routed.route.packet_life_time, 13);
}

TEST_F(CmAddresses, WaitsForTheNeighbour) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("10.9.0.2", kPort), {}, 60000), 0);
  EXPECT_FALSE(program_->poll_event());
  EXPECT_EQ(program_->resolve_route(id), EINVAL);
  ASSERT_TRUE(shell("ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent"));
  const CmEvent resolved = program_->event();
  EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED));
  EXPECT_STREQ(resolved.route.link, "rxe_v0");
  EXPECT_EQ(std::memcmp(resolved.route.source.address, address("10.9.0.1").address, 4), 0);
  EXPECT_EQ(std::memcmp(resolved.route.destination_gid + 12, address("10.9.0.2").address, 4), 0);
}

TEST_F(CmAddresses, WaitsForAnIpv6Neighbour) {
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("2001:db8::2", kPort), {}, 60000), 0);
  EXPECT_FALSE(program_->poll_event());
  ASSERT_TRUE(shell("ip neigh replace 2001:db8::2 lladdr 02:00:00:00:00:02 dev v0 nud permanent"));
  const CmEvent resolved = program_->event();
  EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED));
  EXPECT_EQ(std::memcmp(resolved.route.source_gid, address("2001:db8::1").address, 16), 0);
}

TEST_F(CmAddresses, GivesUpOnANeighbourThatDoesNotAnswer) {
  const uint32_t id = program_->create();
  const TimePoint begin = MonotonicClock::now();
  ASSERT_EQ(program_->resolve_address(id, address("10.9.0.3", kPort), {}, 200), 0);
  EXPECT_EQ(program_->expect(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT), id);
  EXPECT_GE(MonotonicClock::now() - begin, std::chrono::milliseconds(200));
  // The program may try again, from the same port.
  ASSERT_EQ(program_->resolve_address(id, address("10.9.0.1", kPort)), 0);
  program_->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
}

TEST_F(CmAddresses, ManyWaitAtOnceAndSomeAreDestroyed) {
  constexpr int kMany = 50;
  std::vector<uint32_t> ids;
  for (int i = 0; i < kMany; ++i) {
    ids.push_back(program_->create());
    const std::string host = "10.9.0." + std::to_string(100 + i % 10);
    ASSERT_EQ(program_->resolve_address(ids.back(), address(host, kPort), {}, 60000), 0);
  }
  for (int i = 0; i < kMany; i += 5) ASSERT_EQ(program_->destroy(ids[i]), 0);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(shell("ip neigh replace 10.9.0." + std::to_string(100 + i) +
                      " lladdr 02:00:00:00:00:02 dev v0 nud permanent"));
  }
  for (int i = 0; i < kMany - kMany / 5; ++i) {
    const uint32_t id = program_->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    const auto found = std::find(ids.begin(), ids.end(), id);
    ASSERT_NE(found, ids.end());
    EXPECT_NE((found - ids.begin()) % 5, 0);
    ids[found - ids.begin()] = 0;
  }
  EXPECT_FALSE(program_->poll_event());
}

TEST_F(CmAddresses, GoesThroughAGateway) {
  ASSERT_TRUE(
      shell("ip route add 192.0.2.0/24 via 10.9.0.2 && "
            "ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent"));
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("192.0.2.1", kPort)), 0);
  const CmEvent resolved = program_->event();
  EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED));
  EXPECT_STREQ(resolved.route.link, "rxe_v0");
}

// The kernel records an IPv4 neighbor of a point-to-point netdev as 0.0.0.0.
TEST_F(CmAddresses, NeighboursWithoutArpNeedNoAnswer) {
  if (!shell("ip tuntap add dev t0 mode tun 2>/dev/null")) GTEST_SKIP() << "no tun devices here";
  ASSERT_TRUE(shell(
      "ip addr add 10.8.0.1 peer 10.8.0.2 dev t0 && ip addr add 2001:db8:8::1/64 dev t0 nodad && "
      "ip link set t0 up && ip link set v0 arp off && ip route add 10.10.0.0/16 via 10.8.0.2 onlink dev t0"));
  ASSERT_TRUE(eventually([&] { return bind(address("10.8.0.1")) == 0; }));
  for (const char* peer : {"10.8.0.2", "10.10.0.1", "2001:db8:8::2", "10.9.0.2", "2001:db8::2"}) {
    const uint32_t id = program_->create();
    ASSERT_EQ(program_->resolve_address(id, address(peer, kPort)), 0) << peer;
    EXPECT_EQ(program_->expect(RDMA_CM_EVENT_ADDR_RESOLVED), id) << peer;
  }
  // The same if the user turns on ARP for a tun device: it has no hardware addresses anyway.
  ASSERT_TRUE(shell("ip link set t0 arp on"));
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("10.8.0.2", kPort)), 0);
  EXPECT_EQ(program_->expect(RDMA_CM_EVENT_ADDR_RESOLVED), id);
}

TEST_F(CmAddresses, RefusesWhatHasNoRoute) {
  EXPECT_EQ(program_->resolve_address(program_->create(), address("198.51.100.1", kPort)), ENETUNREACH);
  ASSERT_TRUE(shell("ip route add prohibit 198.51.100.0/24"));
  EXPECT_EQ(program_->resolve_address(program_->create(), address("198.51.100.1", kPort)), EACCES);
  EXPECT_EQ(program_->resolve_address(program_->create(), address("fe80::2", kPort)), EINVAL);
  EXPECT_EQ(program_->resolve_address(program_->create(), address("10.9.0.1", kPort), address("::1")),
            EINVAL);
}

TEST_F(CmAddresses, TakesTheSourceThatIsAskedFor) {
  ASSERT_TRUE(shell("ip addr add 10.9.0.11/24 dev v0"));
  ASSERT_TRUE(eventually([&] { return bind(address("10.9.0.11")) == 0; }));
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("10.9.0.1", kPort), address("10.9.0.11", 4321)), 0);
  const CmEvent resolved = program_->event();
  EXPECT_EQ(std::memcmp(resolved.route.source_gid + 12, address("10.9.0.11").address, 4), 0);
  EXPECT_EQ(ntohs(resolved.route.source.port), 4321);
}

TEST_F(CmAddresses, LinkLocalAddressesNameTheirInterface) {
  const uint32_t scope = ::if_nametoindex("v0");
  // The address of v1 belongs to this host and is reached over v0.
  const uint32_t id = program_->create();
  ASSERT_EQ(program_->resolve_address(id, address("ff02::1", kPort, scope)), 0);
  const CmEvent resolved = program_->event();
  EXPECT_EQ(resolved.type, static_cast<uint32_t>(RDMA_CM_EVENT_ADDR_RESOLVED));
  EXPECT_STREQ(resolved.route.link, "rxe_v0");
}

TEST_F(CmAddresses, TellsOfALinkThatIsGone) {
  const uint32_t bound = program_->create();
  ASSERT_EQ(program_->bind(bound, address("10.9.0.1", kPort)), 0);
  const uint32_t elsewhere = program_->create();
  ASSERT_EQ(program_->bind(elsewhere, address("127.0.0.1", kPort + 1)), 0);
  // As the kernel's rdma_cm, the agent reports neither removed addresses nor changed hardware addresses.
  ASSERT_TRUE(shell("ip addr del 10.9.0.1/24 dev v0"));
  ASSERT_TRUE(shell("ip link set v0 address 02:00:00:00:00:07"));
  ASSERT_TRUE(shell("ip link del v0"));
  EXPECT_EQ(program_->expect(RDMA_CM_EVENT_DEVICE_REMOVAL), bound);
  EXPECT_FALSE(program_->poll_event());
  EXPECT_EQ(program_->listen(bound), EINVAL);
  EXPECT_EQ(program_->listen(elsewhere), 0);
}

}  // namespace
}  // namespace verbena
