// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/packet/packet_socket.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>

#include "adapter/net/net_namespace.h"
#include "base/time.h"
#include "wire/ethernet/frames.h"
#include "wire/ethernet/offloads.h"

namespace verbena::net {
namespace {

using ethernet::parse_headers;
using ethernet::testing::Frame;
using ethernet::testing::FrameBuilder;
using testing::InNamespace;

constexpr auto kPatience = std::chrono::seconds(10);

struct Collector : FrameHandler {
  void on_frame(ConstBytes frame, bool checked) override {
    frames.emplace_back(frame.begin(), frame.end());
    was_checked.push_back(checked);
  }
  std::vector<Frame> frames;
  std::vector<bool> was_checked;
};

class PacketSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::can_make_namespaces()) GTEST_SKIP() << "network namespaces need root";
    hosts_ = std::make_unique<testing::TwoHosts>(1500);
    a_ = open(hosts_->a, "veth-a");
    b_ = open(hosts_->b, "veth-b");
  }

  std::unique_ptr<PacketSocket> open(const testing::NetNamespace& where, const char* device) {
    const InNamespace in(where);
    auto socket = PacketSocket::open(::if_nametoindex(device));
    EXPECT_TRUE(socket) << (socket ? 0 : socket.error().code);
    if (!socket) return nullptr;
    EXPECT_TRUE((*socket)->set_filter(make_open_filter()));
    EXPECT_TRUE((*socket)->join(PACKET_MR_PROMISC));
    return std::move(*socket);
  }

  static PacketSocket::Sent send(PacketSocket& socket, const Frame& frame) {
    const ConstBytes piece(frame);
    EXPECT_TRUE(socket.add({&piece, 1}, static_cast<uint32_t>(frame.size())));
    return socket.send();
  }

  // Receives until `count` frames are ours, by their ether type or port.
  static std::vector<Frame> receive(PacketSocket& socket, size_t count,
                                    const std::function<bool(const Frame&)>& ours, Collector* all = nullptr) {
    std::vector<Frame> found;
    const TimePoint deadline = MonotonicClock::now() + kPatience;
    while (found.size() < count && MonotonicClock::now() < deadline) {
      pollfd waiting{socket.readable_fd(), POLLIN, 0};
      ::poll(&waiting, 1, 100);
      Collector collected;
      socket.receive(collected, 64);
      for (size_t i = 0; i < collected.frames.size(); ++i) {
        if (!ours(collected.frames[i])) continue;
        found.push_back(collected.frames[i]);
        if (all != nullptr) all->was_checked.push_back(collected.was_checked[i]);
      }
    }
    return found;
  }
  static bool is_test_frame(const Frame& frame) {
    const auto headers = parse_headers(frame);
    return headers && headers->key.ether_type == byteswap(uint16_t{0x88b5});
  }
  static bool is_to_port(const Frame& frame, uint16_t port) {
    const auto headers = parse_headers(frame);
    return headers && headers->key.destination_port == byteswap(port);
  }

  // Sends a datagram to host b from the kernel of host a.
  void send_datagram(uint16_t port) {
    const InNamespace in(hosts_->a);
    const UniqueFd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = address_of_b(port);
    EXPECT_EQ(::sendto(udp.get(), "hello", 5, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to), 5);
  }
  static sockaddr_in address_of_b(uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(0x0a2f5b02);
    return to;
  }

  std::unique_ptr<testing::TwoHosts> hosts_;
  std::unique_ptr<PacketSocket> a_, b_;
};

Frame test_frame(uint32_t payload) {
  return FrameBuilder().addresses().half(0x88b5).fill(payload).build();
}

TEST_F(PacketSocketTest, CarriesAFrameAsItIs) {
  const Frame frame = test_frame(1500);
  const auto sent = send(*a_, frame);
  EXPECT_EQ(sent.frames, 1u);
  EXPECT_EQ(sent.error, 0);
  EXPECT_THAT(receive(*b_, 1, is_test_frame), ::testing::ElementsAre(frame));
}

TEST_F(PacketSocketTest, PadsAShortFrame) {
  Frame frame = test_frame(1);
  send(*a_, frame);
  frame.resize(60);
  EXPECT_THAT(receive(*b_, 1, is_test_frame), ::testing::ElementsAre(frame));
}

TEST_F(PacketSocketTest, GathersPiecesAndBatches) {
  std::vector<Frame> frames;
  for (uint32_t i = 0; i < 40; ++i) frames.push_back(test_frame(100 + i));
  for (const Frame& frame : frames) {
    const ConstBytes all(frame);
    const ConstBytes pieces[] = {all.first(3), all.subspan(3, 50), all.subspan(53)};
    ASSERT_TRUE(a_->add(pieces, static_cast<uint32_t>(frame.size())));
  }
  EXPECT_EQ(a_->send().frames, 40u);
  EXPECT_EQ(a_->sent_frame(7).size(), 3u);
  EXPECT_EQ(receive(*b_, 40, is_test_frame), frames);
}

TEST_F(PacketSocketTest, BatchHasAnEnd) {
  const Frame frame = test_frame(100);
  const ConstBytes piece(frame);
  int added = 0;
  while (a_->add({&piece, 1}, static_cast<uint32_t>(frame.size()))) ASSERT_LT(++added, 1000);
  EXPECT_GT(added, 16);
  EXPECT_EQ(a_->send().frames, static_cast<uint32_t>(added));
  EXPECT_TRUE(a_->add({&piece, 1}, static_cast<uint32_t>(frame.size())));
}

TEST_F(PacketSocketTest, VlanTagStaysInTheFrame) {
  const Frame frame = FrameBuilder().addresses().vlan(0x6064).half(0x88b5).fill(80).build();
  const Frame twice =
      FrameBuilder().addresses().vlan(5, ethernet::kTypeServiceVlan).vlan(6).half(0x88b5).fill(80).build();
  send(*a_, frame);
  send(*a_, twice);
  EXPECT_THAT(receive(*b_, 2, is_test_frame), ::testing::ElementsAre(frame, twice));
}

// The filter passes tagged frames that steering wants, although the kernel has removed their outermost tag
// before the filter sees them.
TEST_F(PacketSocketTest, FilterSeesTheTagThatTheKernelRemoved) {
  ethernet::SteeringRule rule;
  rule.value.vlan_tag = byteswap(uint16_t{100});
  rule.mask.vlan_tag = byteswap(uint16_t{0xfff});
  rule.value.layers = rule.mask.layers = ethernet::kVlan;
  rule.value.ether_type = byteswap(uint16_t{0x88b5});
  rule.mask.ether_type = 0xffff;
  ethernet::SteeringTable table;
  table.add(rule);
  ASSERT_TRUE(b_->set_filter(make_flow_filter(table).program));
  const Frame wanted = FrameBuilder().addresses().vlan(0x6000 | 100).half(0x88b5).fill(80).build();
  const Frame doubled = FrameBuilder().addresses().vlan(100).vlan(7).half(0x88b5).fill(80).build();
  send(*a_, FrameBuilder().addresses().vlan(101).half(0x88b5).fill(80).build());
  send(*a_, FrameBuilder().addresses().vlan(7).vlan(100).half(0x88b5).fill(80).build());
  send(*a_, test_frame(80));
  send(*a_, wanted);
  send(*a_, doubled);
  EXPECT_THAT(receive(*b_, 2, is_test_frame), ::testing::ElementsAre(wanted, doubled));
}

TEST_F(PacketSocketTest, RefusesWhatNoDeviceSends) {
  EXPECT_EQ(send(*a_, test_frame(1501)).error, EMSGSIZE);
  EXPECT_EQ(send(*a_, Frame(13)).error, EINVAL);
  const auto* gone = static_cast<const std::byte*>(nullptr);
  const ConstBytes piece(gone + 4096, 100);
  ASSERT_TRUE(a_->add({&piece, 1}, 100));
  const auto sent = a_->send();
  EXPECT_EQ(sent.frames, 0u);
  EXPECT_EQ(sent.error, EFAULT);
}

TEST_F(PacketSocketTest, SaysHowManyWentBeforeABadOne) {
  const Frame good = test_frame(80), bad = test_frame(3000);
  for (const Frame* frame : {&good, &good, &bad, &good}) {
    const ConstBytes piece(*frame);
    ASSERT_TRUE(a_->add({&piece, 1}, static_cast<uint32_t>(frame->size())));
  }
  const auto sent = a_->send();
  EXPECT_EQ(sent.frames, 2u);
  EXPECT_EQ(sent.error, EMSGSIZE);
  EXPECT_THAT(receive(*b_, 2, is_test_frame), ::testing::ElementsAre(good, good));
}

TEST_F(PacketSocketTest, LosesFramesWhenTheDeviceIsDown) {
  const InNamespace in(hosts_->a);
  testing::run("ip link set veth-a down");
  EXPECT_EQ(send(*a_, test_frame(80)).frames, 1u);
  Collector leftovers;
  while (a_->receive(leftovers, 64) > 0) {
  }
  EXPECT_EQ(send(*a_, test_frame(80)).frames, 1u);
  EXPECT_EQ(a_->receive(leftovers, 64), 0u) << "an event of the device is no frame";
}

TEST_F(PacketSocketTest, DoesNotReceiveItsOwnFrames) {
  send(*a_, test_frame(80));
  ASSERT_EQ(receive(*b_, 1, is_test_frame).size(), 1u);
  Collector heard;
  a_->receive(heard, 64);
  for (const Frame& frame : heard.frames) EXPECT_FALSE(is_test_frame(frame));
}

TEST_F(PacketSocketTest, OthersOnTheDeviceSeeItsRawFramesButNotTheKernels) {
  const auto other = open(hosts_->a, "veth-a");
  ethernet::SteeringRule all;
  all.kind = ethernet::RuleKind::kAllDefault;
  ethernet::SteeringTable table;
  table.add(all);
  ASSERT_TRUE(other->set_filter(make_flow_filter(table).program));
  constexpr uint16_t kPort = 7779;
  send_datagram(kPort);
  ASSERT_EQ(receive(*b_, 1, [&](const Frame& frame) { return is_to_port(frame, kPort); }).size(), 1u);
  send(*a_, test_frame(80));
  Collector heard;
  const TimePoint deadline = MonotonicClock::now() + kPatience;
  const auto ours = [&] { return std::count_if(heard.frames.begin(), heard.frames.end(), is_test_frame); };
  while (ours() == 0 && MonotonicClock::now() < deadline) other->receive(heard, 64);
  EXPECT_EQ(ours(), 1);
  for (const Frame& frame : heard.frames) {
    EXPECT_FALSE(is_to_port(frame, kPort)) << "the kernel sent that";
  }
}

// A frame whose segmentation and checksums a host's kernel has left to the device.
TEST_F(PacketSocketTest, CutsAndChecksumsWhatTheKernelLeftToTheDevice) {
  constexpr uint16_t kPort = 7777;
  constexpr int kSegment = 1000;
  {
    const InNamespace in(hosts_->a);
    const UniqueFd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = address_of_b(kPort);
    constexpr int kUdpSegment = 103;
    ASSERT_EQ(::setsockopt(udp.get(), IPPROTO_UDP, kUdpSegment, &kSegment, sizeof kSegment), 0);
    const std::string data(3500, 'x');
    ASSERT_EQ(
        ::sendto(udp.get(), data.data(), data.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
        3500);
  }
  const auto frames = receive(*b_, 4, [&](const Frame& frame) { return is_to_port(frame, kPort); });
  ASSERT_EQ(frames.size(), 4u);
  for (size_t i = 0; i < frames.size(); ++i) {
    EXPECT_EQ(frames[i].size(), i < 3 ? 1042u : 542u);
    EXPECT_TRUE(ethernet::checksums_good(frames[i], *parse_headers(frames[i]))) << i;
  }
}

TEST_F(PacketSocketTest, ReportsThatTheKernelMadeTheChecksum) {
  constexpr uint16_t kPort = 7778;
  send_datagram(kPort);
  Collector all;
  const auto frames = receive(
      *b_, 1, [&](const Frame& frame) { return is_to_port(frame, kPort); }, &all);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_TRUE(all.was_checked.front());
  EXPECT_TRUE(ethernet::checksums_good(frames[0], *parse_headers(frames[0])));
}

TEST_F(PacketSocketTest, LoopbackGivesEachFrameOnce) {
  const auto lo = [&] {
    const InNamespace in(hosts_->a);
    testing::run("ip link set lo up");
    return open(hosts_->a, "lo");
  }();
  EXPECT_TRUE(lo->is_loopback());
  send(*lo, test_frame(80));
  send(*lo, test_frame(90));
  EXPECT_THAT(receive(*lo, 2, is_test_frame), ::testing::ElementsAre(test_frame(80), test_frame(90)));
}

TEST_F(PacketSocketTest, RefusesDevicesOtherThanEthernet) {
  const InNamespace in(hosts_->a);
  testing::run("ip tuntap add mode tun name tunnel");
  const auto refused = PacketSocket::open(::if_nametoindex("tunnel"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EOPNOTSUPP);
  const auto none = PacketSocket::open(4711);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ENODEV);
}

}  // namespace
}  // namespace verbena::net
