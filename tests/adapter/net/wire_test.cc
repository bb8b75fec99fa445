// SPDX-License-Identifier: Apache-2.0
// Packets on the wire, as captured by a packet socket: two network namespaces joined by a veth pair.
#include <chrono>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>

#include "adapter/net/capture.h"
#include "adapter/net/net_namespace.h"
#include "adapter/net/packets.h"
#include "adapter/net/udp/route_check.h"
#include "adapter/net/udp/socket_address.h"
#include "base/random.h"

namespace verbena::net::testing {
namespace {

using transport::SendStatus;

struct Family {
  const char* name;
  const char* a;
  const char* b;
  const char* nobody;  // an address of the same network that no host has
};

// A port in each of two hosts, both in slot 0.
class Wire : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!can_make_namespaces()) GTEST_SKIP() << "making a network namespace needs root";
  }

  void join(int mtu) {
    hosts_ = std::make_unique<TwoHosts>(mtu);
    {
      const InNamespace there(hosts_->b);
      receiver_ = open();
      capture_ = std::make_unique<Capture>("veth-b");
    }
    here_ = std::make_unique<InNamespace>(hosts_->a);
    sender_ = open();
  }

  static std::unique_ptr<UdpPort> open(const UdpPortOptions& options = {}) {
    Result<UniqueFd> fd = open_receive_socket(roce::kUdpPort);
    EXPECT_TRUE(fd);
    auto port = UdpPort::create(std::move(*fd), options);
    EXPECT_TRUE(port);
    return std::move(*port);
  }

  roce::Path path() const { return testing::path(GetParam().a, GetParam().b); }

  void expect_exact(const Captured& packet) {
    EXPECT_TRUE(packet.flow.ipv6 || packet.dont_fragment);
    EXPECT_EQ(packet.fragments, 1u);
    expect_exact_icrc(packet);
  }

  // Checks the ICRC of the reassembled packet, as the kernel's rxe does.
  void expect_exact_in_fragments(const Captured& packet, uint32_t fragments) {
    EXPECT_EQ(packet.fragments, fragments);
    EXPECT_FALSE(packet.dont_fragment);
    Captured whole = packet;
    whole.flow.may_fragment = !packet.flow.ipv6;
    expect_exact_icrc(whole);
  }

  void expect_exact_icrc(const Captured& packet) {
    const size_t covered = packet.udp_payload.size() - roce::kIcrcBytes;
    const uint32_t exact =
        roce::icrc_of(packet.flow, packet.identification, ConstBytes(packet.udp_payload).first(covered));
    std::array<std::byte, roce::kIcrcBytes> stored;
    roce::icrc_store(~exact, stored.data());
    EXPECT_EQ(std::memcmp(stored.data(), &packet.udp_payload[covered], stored.size()), 0);
    EXPECT_GE(packet.flow.source_port, 0xc000);
  }

  // Turns off the sender's checksums: the kernel then rejects UDP_SEGMENT. The same happens with devices
  // without checksum offload, and with IPsec.
  static void refuse_super_packets() {
    constexpr int kMaxDescriptors = 2048;  // ours lie high up (base/own_fd.h)
    int switched = 0;
    for (int fd = 0; fd < kMaxDescriptors; ++fd) {
      SocketAddress local{};
      socklen_t length = sizeof local;
      if (getsockname(fd, &local.generic, &length) != 0) continue;
      const bool ipv6 = local.generic.sa_family == AF_INET6;
      if ((!ipv6 && local.generic.sa_family != AF_INET) || port_of(local) < 0xc000) continue;
      const int on = 1;
      const int level = ipv6 ? SOL_UDP : SOL_SOCKET;
      const int option = ipv6 ? UDP_NO_CHECK6_TX : SO_NO_CHECK;
      if (setsockopt(fd, level, option, &on, sizeof on) == 0) ++switched;
    }
    ASSERT_EQ(switched, 1);
  }

  // Destroyed last to first: the thread leaves the namespaces before they are destroyed.
  std::unique_ptr<TwoHosts> hosts_;
  std::unique_ptr<InNamespace> here_;
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<UdpPort> receiver_;
  std::unique_ptr<UdpPort> sender_;
  Collector collector_;
};

TEST_P(Wire, CarriesExactIcrcsInEverySegmentOfASuperPacket) {
  join(9000);
  set_offload("veth-a", "tx-udp-segmentation", false);
  uint32_t psn = 0;
  for (uint32_t i = 0; i < 15; ++i) send(*sender_, path(), write_middle(0, psn++, 4096), pattern(4096, i));
  send(*sender_, path(), write_middle(0, psn++, 100), pattern(100, 1));
  ASSERT_TRUE(sender_->flush());

  const std::vector<Captured> packets = capture_->take(roce::kUdpPort, psn);
  ASSERT_EQ(packets.size(), 16u);
  for (uint32_t i = 0; i < packets.size(); ++i) {
    SCOPED_TRACE(i);
    expect_exact(packets[i]);
    // 15 packets of 4112 bytes fill a run; the k-th has identification k. The 16th is alone.
    EXPECT_EQ(packets[i].identification, packets[i].flow.ipv6 || i == 15 ? 0 : i);
  }
  EXPECT_TRUE(collector_.receive(*receiver_, 16));
}

TEST_P(Wire, CarriesExactIcrcsInRunsOfSmallAndMixedPackets) {
  join(9000);
  set_offload("veth-a", "tx-udp-segmentation", false);
  Random random(3);
  uint32_t psn = 0;
  for (int round = 0; round < 20; ++round) {
    const auto size = static_cast<uint32_t>(random.below(1100));
    const uint64_t count = 1 + random.below(100);
    for (uint64_t i = 0; i < count; ++i) {
      send(*sender_, path(), write_middle(0, psn, size), pattern(size, psn));
      ++psn;
    }
    if (random.one_in(2)) send(*sender_, path(), acknowledge(0, psn++), {});
    ASSERT_TRUE(sender_->flush());
  }
  const std::vector<Captured> packets = capture_->take(roce::kUdpPort, psn);
  ASSERT_EQ(packets.size(), psn);
  uint32_t longest_run = 0;
  for (const Captured& packet : packets) {
    expect_exact(packet);
    longest_run = std::max<uint32_t>(longest_run, packet.identification + 1);
  }
  EXPECT_EQ(longest_run, packets[0].flow.ipv6 ? 1u : 64u);
  EXPECT_TRUE(collector_.receive(*receiver_, psn));
  for (const uint64_t dropped : receiver_->counters().dropped) EXPECT_EQ(dropped, 0u);
}

TEST_P(Wire, MergesArrivalsByGroAndChecksThemAll) {
  join(9000);
  set_offload("veth-a", "tx-udp-segmentation", false);
  {
    const InNamespace there(hosts_->b);
    set_offload("veth-b", "rx-gro", true);
    set_offload("veth-b", "rx-udp-gro-forwarding", true);  // veth passes no UDP to GRO otherwise
  }
  for (uint32_t i = 0; i < 60; ++i) send(*sender_, path(), write_middle(0, i, 1024), pattern(1024, i));
  ASSERT_TRUE(sender_->flush());
  ASSERT_TRUE(wait_for(receiver_->receive_fd(), POLLIN));
  // One read of an idle port takes one datagram, which holds several packets if GRO has merged them.
  EXPECT_GT(receiver_->receive(collector_, 1), 1u);
  ASSERT_TRUE(collector_.receive(*receiver_, 60));
  for (uint32_t i = 0; i < 60; ++i) {
    EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
    EXPECT_EQ(collector_.packets[i].payload, pattern(1024, i));
  }
}

TEST_P(Wire, SendsInFragmentsWhatIsTooLongForItsPath) {
  join(9000);
  // A route MTU below the device's rejects segments of 4112 bytes, even single ones; 1040 bytes always pass.
  run(std::string("ip route add ") + GetParam().b + " dev veth-a mtu 2000");
  for (uint32_t i = 0; i < 3; ++i) send(*sender_, path(), write_middle(0, i, 4096), pattern(4096, i));
  send(*sender_, path(), write_middle(0, 3, 1024), pattern(1024, 3));
  ASSERT_TRUE(sender_->flush());
  EXPECT_EQ(sender_->counters().send_errors, 0u);
  EXPECT_EQ(sender_->counters().sent_packets, 4u);
  ASSERT_TRUE(collector_.receive(*receiver_, 4));
  std::set<uint32_t> psns;
  for (const auto& packet : collector_.packets) psns.insert(packet.headers.psn.value());
  EXPECT_EQ(psns, (std::set<uint32_t>{0, 1, 2, 3}));
  // Packets that fit have "don't fragment" set, as before.
  capture_->take(roce::kUdpPort, 4);
  send(*sender_, path(), write_middle(0, 4, 1024), pattern(1024, 4));
  ASSERT_TRUE(sender_->flush());
  const std::vector<Captured> packets = capture_->take(roce::kUdpPort, 1);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].identification, 0u);
  expect_exact(packets[0]);
}

// A peer without a reorder buffer (rxe) would request all later packets again.
TEST_P(Wire, KeepsTheOrderOfPacketsOfWhichSomeLeaveInFragments) {
  join(9000);
  run(std::string("ip route add ") + GetParam().b + " dev veth-a mtu 2000");
  // The first run learns that the packets are too long.
  for (uint32_t psn = 0; psn < 20; psn += 5) {
    for (uint32_t i = psn; i < psn + 4; ++i)
      send(*sender_, path(), write_middle(0, i, 4096), pattern(4096, i));
    send(*sender_, path(), write_middle(0, psn + 4, 1024), pattern(1024, psn + 4));
    ASSERT_TRUE(sender_->flush());
  }
  EXPECT_EQ(sender_->counters().sent_packets, 20u);
  EXPECT_EQ(sender_->counters().send_errors, 0u);
  ASSERT_TRUE(collector_.receive(*receiver_, 20));
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
}

TEST_P(Wire, CarriesExactIcrcsInPacketsThatLeaveInFragments) {
  join(1500);
  uint32_t psn = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i <= round; ++i, ++psn)
      send(*sender_, path(), write_middle(0, psn, 4096), pattern(4096, psn));
    ASSERT_TRUE(sender_->flush());
  }
  EXPECT_EQ(sender_->counters().send_errors, 0u);
  EXPECT_EQ(sender_->counters().sent_packets, psn);
  const std::vector<Captured> packets = capture_->take(roce::kUdpPort, psn);
  ASSERT_EQ(packets.size(), psn);
  for (const Captured& packet : packets) expect_exact_in_fragments(packet, 3);
  EXPECT_TRUE(collector_.receive(*receiver_, psn));
  for (const uint64_t dropped : receiver_->counters().dropped) EXPECT_EQ(dropped, 0u);
}

TEST_P(Wire, SendsWholePacketsAgainWhenThePathTakesThem) {
  join(1500);
  send(*sender_, path(), write_middle(0, 0, 4096), pattern(4096, 0));
  ASSERT_TRUE(sender_->flush());
  run("ip link set veth-a mtu 9000");
  {
    const InNamespace there(hosts_->b);
    run("ip link set veth-b mtu 9000");
  }
  for (uint32_t i = 1; i < 4; ++i) send(*sender_, path(), write_middle(0, i, 4096), pattern(4096, i));
  ASSERT_TRUE(sender_->flush());
  ASSERT_TRUE(collector_.receive(*receiver_, 4));
  run("ip link set veth-a mtu 1500");
  for (uint32_t i = 4; i < 8; ++i) send(*sender_, path(), write_middle(0, i, 4096), pattern(4096, i));
  ASSERT_TRUE(sender_->flush());
  EXPECT_TRUE(collector_.receive(*receiver_, 8));
  for (const uint64_t dropped : receiver_->counters().dropped) EXPECT_EQ(dropped, 0u);
}

// The situation in which the kernel does not tell us that packets are fragmented.
TEST_P(Wire, TakesPacketsInFragmentsWithTheIcrcOfWhatNobodyMayCut) {
  join(1500);
  run("ip link set lo down");  // the probe uses loopback
  for (uint32_t i = 0; i < 4; ++i) send(*sender_, path(), write_middle(0, i, 4096), pattern(4096, i));
  ASSERT_TRUE(sender_->flush());
  EXPECT_TRUE(collector_.receive(*receiver_, 4));
}

// A route refuses the destination with EINVAL, an error that wrong flow labels cause, too.
TEST_P(Wire, GoesOnToOthersWhenADestinationIsRefused) {
  join(1500);
  const bool ipv4 = std::string(GetParam().a).find(':') == std::string::npos;
  const char* const gone = ipv4 ? "198.51.100.7" : "2001:db8:99::7";
  run(std::string("ip route add blackhole ") + gone);
  roce::Path refused = testing::path(GetParam().a, gone);
  roce::Path good = path();
  refused.flow_label = good.flow_label = 0x12345;
  send(*sender_, good, write_middle(0, 0, 8), pattern(8, 0));
  ASSERT_TRUE(sender_->flush());
  for (uint32_t i = 0; i < 3; ++i) {
    send(*sender_, refused, write_middle(0, i, 8), pattern(8, i));
    ASSERT_TRUE(sender_->flush());
    send(*sender_, good, write_middle(0, i + 1, 8), pattern(8, i));
    ASSERT_TRUE(sender_->flush());
  }
  EXPECT_EQ(sender_->counters().send_errors, 3u);
  EXPECT_TRUE(collector_.receive(*receiver_, 4));
}

TEST_P(Wire, SendsSinglyWithExactIcrcsWhereSuperPacketsAreRefused) {
  join(9000);
  send(*sender_, path(), write_middle(0, 0, 8), pattern(8, 0));  // creates the socket
  ASSERT_TRUE(sender_->flush());
  refuse_super_packets();
  const int on = 1;  // an IPv6 receiver must allow packets without checksums
  setsockopt(receiver_->receive_fd(), SOL_UDP, UDP_NO_CHECK6_RX, &on, sizeof on);
  for (uint32_t i = 1; i < 40; ++i) {
    send(*sender_, path(), write_middle(0, i, 1024), pattern(1024, i));
    if (i % 13 == 0) {
      ASSERT_TRUE(sender_->flush());
    }
  }
  EXPECT_EQ(sender_->counters().send_errors, 0u);
  EXPECT_EQ(sender_->counters().sent_packets, 40u);
  const std::vector<Captured> packets = capture_->take(roce::kUdpPort, 40);
  ASSERT_EQ(packets.size(), 40u);
  for (const Captured& packet : packets) {
    EXPECT_EQ(packet.identification, 0u);
    expect_exact(packet);
  }
  ASSERT_TRUE(collector_.receive(*receiver_, 40));
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
}

TEST_P(Wire, LeavesByTheDeviceOfThePath) {
  join(1500);
  run("ip link add veth-c type veth peer name veth-d && ip link set veth-c up && ip link set veth-d up");
  roce::Path wanted = path();
  for (const auto& [device, arrives] : {std::pair{"veth-a", 1u}, {"veth-c", 0u}}) {
    wanted.interface_index = if_nametoindex(device);
    send(*sender_, wanted, write_middle(0, arrives, 64), pattern(64, 1));
    sender_->flush();
  }
  // The right device last: by then packets over the others would have arrived.
  wanted.interface_index = if_nametoindex("veth-a");
  send(*sender_, wanted, write_middle(0, 2, 64), pattern(64, 1));
  ASSERT_TRUE(sender_->flush());
  ASSERT_TRUE(collector_.receive(*receiver_, 2));
  EXPECT_EQ(collector_.packets[0].headers.psn, roce::Psn(1));
  EXPECT_EQ(collector_.packets[1].headers.psn, roce::Psn(2));
}

TEST_P(Wire, ReachesItsOwnHostByTheDeviceOfThePath) {
  join(1500);
  roce::Path self = testing::path(GetParam().a, GetParam().a);
  self.interface_index = if_nametoindex("veth-a");
  send(*sender_, self, write_middle(0, 1, 64), pattern(64, 1));
  ASSERT_TRUE(sender_->flush());
  ASSERT_TRUE(collector_.receive(*sender_, 1));
  EXPECT_EQ(collector_.packets[0].path.source, self.source);
}

TEST_P(Wire, AnswersBusyWhenFullAndRecovers) {
  join(1500);
  // A queue that sends almost nothing: queued packets stay charged to the socket.
  run("tc qdisc add dev veth-a root tbf rate 8kbit burst 2kb limit 100mb");
  const std::vector<std::byte> payload = pattern(1024, 1);
  SendStatus status = SendStatus::kSent;
  uint32_t accepted = 0;
  while (accepted < 1'000'000 &&
         (status = send(*sender_, path(), write_middle(0, accepted, 1024), payload)) == SendStatus::kSent) {
    ++accepted;
  }
  ASSERT_EQ(status, SendStatus::kBusy);
  EXPECT_FALSE(sender_->flush());
  EXPECT_GE(sender_->send_fd(), 0);
  EXPECT_EQ(send(*sender_, path(), write_middle(0, accepted, 1024), payload), SendStatus::kBusy);
  EXPECT_EQ(sender_->counters().send_errors, 0u);
  // No accepted packet is lost: those that the kernel does not have are staged.
  const uint64_t staged = accepted - sender_->counters().sent_packets;
  EXPECT_GT(staged, 0u);

  const int blocked = sender_->send_fd();
  run("tc qdisc del dev veth-a root");  // drops the queued packets
  ASSERT_TRUE(wait_for(blocked, POLLOUT));
  EXPECT_TRUE(sender_->flush());
  EXPECT_EQ(sender_->send_fd(), -1);
  EXPECT_EQ(sender_->counters().sent_packets, accepted);
  EXPECT_EQ(send(*sender_, path(), write_middle(0, accepted, 1024), payload), SendStatus::kSent);
  EXPECT_TRUE(sender_->flush());
}

TEST_P(Wire, SendsFromAnotherPortWhereAUserHasTakenThoseOfRoce) {
  join(1500);
  const TakenPorts taken = TakenPorts::of_roce();
  send(*sender_, path(), write_middle(0, 0, 1024), pattern(1024, 0));
  ASSERT_TRUE(sender_->flush());
  ASSERT_TRUE(collector_.receive(*receiver_, 1));
  EXPECT_LT(collector_.packets[0].source_port, 0xc000);
}

// Packets to a host that answers no ARP wait in the kernel and fill the socket that all destinations share.
class WireWithSilentNeighbour : public Wire {
 protected:
  static constexpr uint32_t kOthers = 64;

  // Sends packets to another host among many to a silent one. Returns them as captured.
  std::vector<Captured> send_beside_silent(uint32_t bytes) {
    join(1500);
    set_offload("veth-a", "tx-udp-segmentation", false);
    for (const char* family : {"ipv4", "ipv6"})  // the kernel must not give up, which would empty the socket
      run(std::string("sysctl -qw net.") + family + ".neigh.veth-a.retrans_time_ms=60000");
    EXPECT_TRUE(check_route(path(), std::chrono::minutes(1)));
    UdpPortOptions options;
    options.send_buffer_bytes = 64 << 10;  // less than what the kernel keeps for a neighbour
    sender_.reset();
    sender_ = open(options);
    const roce::Path to_nobody = testing::path(GetParam().a, GetParam().nobody);
    for (uint32_t i = 0; i < kOthers; ++i) {
      for (uint32_t k = 0; k < 10; ++k) {
        EXPECT_EQ(send(*sender_, to_nobody, write_middle(0, 0, bytes), pattern(bytes, k)), SendStatus::kSent);
      }
      EXPECT_EQ(send(*sender_, path(), write_middle(0, i, bytes), pattern(bytes, i)), SendStatus::kSent);
    }
    EXPECT_TRUE(sender_->flush());
    EXPECT_EQ(sender_->counters().send_errors, 0u);
    return capture_->take(roce::kUdpPort, kOthers);
  }
  static size_t source_ports_of(const std::vector<Captured>& packets) {
    std::set<uint16_t> ports;
    for (const Captured& packet : packets) ports.insert(packet.flow.source_port);
    return ports.size();
  }
};

TEST_P(WireWithSilentNeighbour, SendsToOthers) {
  const std::vector<Captured> packets = send_beside_silent(1024);
  EXPECT_EQ(packets.size(), kOthers);
  for (const Captured& packet : packets) expect_exact(packet);
  EXPECT_GT(source_ports_of(packets), 1u) << "the socket was never full";
}

// Packets in fragments leave by another socket.
TEST_P(WireWithSilentNeighbour, SendsFragmentsToOthers) {
  const std::vector<Captured> packets = send_beside_silent(2048);
  EXPECT_EQ(packets.size(), kOthers);
  for (const Captured& packet : packets) expect_exact_in_fragments(packet, 2);
  EXPECT_GT(source_ports_of(packets), 1u) << "the socket was never full";
}

const auto kFamilies = ::testing::Values(Family{"Ipv4", "10.47.91.1", "10.47.91.2", "10.47.91.77"},
                                         Family{"Ipv6", "fd47:91::1", "fd47:91::2", "fd47:91::77"});
const auto kNameOf = [](const auto& instance) { return instance.param.name; };
INSTANTIATE_TEST_SUITE_P(Veth, Wire, kFamilies, kNameOf);
INSTANTIATE_TEST_SUITE_P(Veth, WireWithSilentNeighbour, kFamilies, kNameOf);

}  // namespace
}  // namespace verbena::net::testing
