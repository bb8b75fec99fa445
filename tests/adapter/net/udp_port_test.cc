// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/udp_port.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "adapter/net/packets.h"
#include "adapter/net/udp/send_sockets.h"
#include "adapter/net/udp/socket_address.h"
#include "base/random.h"

namespace verbena::net::testing {
namespace {

using transport::SendStatus;

// Two ports on loopback, in slots 1 and 2. Slot 0 exists, as the agent's would.
class UdpPortPair : public ::testing::TestWithParam<const char*> {
 protected:
  SendStatus send(const roce::Headers& headers, ConstBytes payload) {
    return testing::send(group_[1], path_, headers, payload);
  }

  PortGroup group_{3};
  roce::Path path_ = testing::path(GetParam(), GetParam());
  Collector collector_;
};

TEST_P(UdpPortPair, CarriesHeadersPayloadAndPath) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kWriteOnlyImmediate);
  headers.destination = roce::Qpn::in_slot(2, 1234);
  headers.psn = roce::Psn(0xabcdef);
  headers.ack_request = true;
  headers.solicited = true;
  headers.address = 0x1122334455667788;
  headers.rkey = 0x99aabbcc;
  headers.dma_length = 101;
  headers.immediate = 0xdeadbeef;
  headers.pad = roce::padding_of(101);
  path_.traffic_class = 0x68;
  path_.hop_limit = 3;
  path_.flow_label = GetParam()[0] == ':' ? 0x12345 : 0;
  ASSERT_EQ(send(headers, pattern(101, 5)), SendStatus::kSent);
  ASSERT_TRUE(group_[1].flush());
  ASSERT_TRUE(collector_.receive(group_[2], 1));

  const Collector::Received& got = collector_.packets[0];
  EXPECT_EQ(got.payload, pattern(101, 5));
  EXPECT_EQ(got.headers.opcode, headers.opcode);
  EXPECT_EQ(got.headers.destination, headers.destination);
  EXPECT_EQ(got.headers.psn, headers.psn);
  EXPECT_TRUE(got.headers.ack_request);
  EXPECT_TRUE(got.headers.solicited);
  EXPECT_EQ(got.headers.address, headers.address);
  EXPECT_EQ(got.headers.rkey, headers.rkey);
  EXPECT_EQ(got.headers.dma_length, headers.dma_length);
  EXPECT_EQ(got.headers.immediate, headers.immediate);
  EXPECT_EQ(got.path.source, path_.source);
  EXPECT_EQ(got.path.destination, path_.destination);
  EXPECT_EQ(got.path.traffic_class, 0x68);
  EXPECT_EQ(got.path.hop_limit, 3);
  EXPECT_EQ(got.path.flow_label, path_.flow_label);
  EXPECT_NE(got.path.interface_index, 0u);
  EXPECT_EQ(got.udp_bytes, 12u + 16 + 4 + 101 + 3 + 4);
}

TEST_P(UdpPortPair, LeavesOutIpDetailsThatAreNotWanted) {
  path_.traffic_class = 0x68;
  path_.hop_limit = 3;
  group_[2].want_ip_details(false);
  send(write_middle(2, 0, 16), pattern(16, 1));
  group_[1].flush();
  ASSERT_TRUE(collector_.receive(group_[2], 1));
  EXPECT_EQ(collector_.packets[0].path.traffic_class, 0);
  EXPECT_EQ(collector_.packets[0].path.hop_limit, 64);
  EXPECT_EQ(collector_.packets[0].path.source, path_.source);
  EXPECT_EQ(collector_.packets[0].path.destination, path_.destination);

  group_[2].want_ip_details(true);
  send(write_middle(2, 0, 16), pattern(16, 1));
  group_[1].flush();
  ASSERT_TRUE(collector_.receive(group_[2], 2));
  EXPECT_EQ(collector_.packets[1].path.traffic_class, 0x68);
  EXPECT_EQ(collector_.packets[1].path.hop_limit, 3);
}

TEST_P(UdpPortPair, GathersPiecesOfPayload) {
  const std::vector<std::byte> bytes = pattern(1000, 9);
  const ConstBytes all(bytes);
  const ConstBytes pieces[] = {all.first(1), all.subspan(1, 0), all.subspan(1, 700), all.subspan(701)};
  const roce::Headers headers = write_middle(2, 1, 1000);
  ASSERT_EQ(group_[1].send({path_, headers, pieces, 1000}), SendStatus::kSent);
  group_[1].flush();
  ASSERT_TRUE(collector_.receive(group_[2], 1));
  EXPECT_EQ(collector_.packets[0].payload, bytes);
}

TEST_P(UdpPortPair, SendsNothingBeforeFlush) {
  ASSERT_EQ(send(write_middle(2, 0, 64), pattern(64, 1)), SendStatus::kSent);
  EXPECT_EQ(group_[2].receive(collector_, 16), 0u);
  EXPECT_EQ(group_[1].counters().sent_packets, 0u);
  group_[1].flush();
  EXPECT_EQ(group_[1].counters().sent_packets, 1u);
  EXPECT_EQ(group_[1].counters().sent_bytes, 80u);
  EXPECT_TRUE(collector_.receive(group_[2], 1));
}

TEST_P(UdpPortPair, FlushSucceedsWithNothingStaged) {
  EXPECT_TRUE(group_[1].flush());
  EXPECT_EQ(group_[1].send_fd(), -1);
}

TEST_P(UdpPortPair, ManyPacketsOfOneSizeArriveInOneRead) {
  for (uint32_t i = 0; i < 15; ++i) send(write_middle(2, i, 4096), pattern(4096, i));
  group_[1].flush();
  ASSERT_TRUE(wait_for(group_[2].receive_fd(), POLLIN));
  // The first read of an idle port takes one datagram, which contained all packets.
  EXPECT_EQ(group_[2].receive(collector_, 1), 15u);
  ASSERT_EQ(collector_.packets.size(), 15u);
  for (uint32_t i = 0; i < 15; ++i) {
    EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
    EXPECT_EQ(collector_.packets[i].payload, pattern(4096, i));
  }
}

TEST_P(UdpPortPair, AnAcknowledgeTravelsAsTheLastShorterSegment) {
  for (uint32_t i = 0; i < 3; ++i) send(write_middle(2, i, 1024), pattern(1024, i));
  send(acknowledge(2, 77), {});
  group_[1].flush();
  ASSERT_TRUE(wait_for(group_[2].receive_fd(), POLLIN));
  EXPECT_EQ(group_[2].receive(collector_, 1), 4u);
  ASSERT_EQ(collector_.packets.size(), 4u);
  EXPECT_EQ(collector_.packets[3].headers.psn, roce::Psn(77));
  EXPECT_EQ(collector_.packets[3].headers.syndrome, 0x1f);
}

// The First packet of an RDMA WRITE is longer by its RETH.
TEST_P(UdpPortPair, ALongerFirstPacketLeavesTheOthersTheirSuperPacket) {
  roce::Headers first = write_middle(2, 0, 4096);
  first.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kWriteFirst);
  send(first, pattern(4096, 0));
  for (uint32_t i = 1; i < 16; ++i) send(write_middle(2, i, 4096), pattern(4096, i));
  group_[1].flush();
  ASSERT_TRUE(wait_for(group_[2].receive_fd(), POLLIN));
  EXPECT_EQ(group_[2].receive(collector_, 1), 1u);
  ASSERT_TRUE(wait_for(group_[2].receive_fd(), POLLIN));
  EXPECT_EQ(group_[2].receive(collector_, 1), 15u);
}

// The packets after the second one fill super-packets without it.
TEST_P(UdpPortPair, ALongerFirstPacketTakesAnotherAlongThatMayFollowIt) {
  roce::Headers first = write_middle(2, 0, 4096);
  first.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kWriteFirst);
  send(first, pattern(4096, 0));
  const auto payload = pattern(4096, 1);
  const ConstBytes pieces[] = {payload};
  group_[1].send({.path = path_,
                  .headers = write_middle(2, 1, 4096),
                  .payload = pieces,
                  .payload_bytes = 4096,
                  .follows_longer = true});
  for (uint32_t i = 2; i < 17; ++i) send(write_middle(2, i, 4096), pattern(4096, i));
  group_[1].flush();
  for (const uint32_t packets : {2, 15}) {
    ASSERT_TRUE(wait_for(group_[2].receive_fd(), POLLIN));
    EXPECT_EQ(group_[2].receive(collector_, 1), packets);
  }
  for (uint32_t i = 0; i < 17; ++i) EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
}

TEST_P(UdpPortPair, KeepsTheOrderOfAnyMixOfSizes) {
  const uint64_t seed = 7;
  SCOPED_TRACE(seed);
  Random random(seed);
  constexpr uint32_t kPackets = 3000;
  std::vector<uint32_t> sizes;
  for (uint32_t i = 0; i < kPackets; ++i) {
    const bool same = i > 0 && !random.one_in(4);
    sizes.push_back(same ? sizes.back() : static_cast<uint32_t>(random.below(4097)));
  }
  uint32_t sent = 0;
  while (collector_.packets.size() < kPackets) {
    const uint32_t burst = std::min<uint32_t>(kPackets - sent, 1 + static_cast<uint32_t>(random.below(40)));
    for (uint32_t i = 0; i < burst; ++i, ++sent) {
      ASSERT_EQ(send(write_middle(2, sent, sizes[sent]), pattern(sizes[sent], sent)), SendStatus::kSent);
    }
    ASSERT_TRUE(group_[1].flush());
    ASSERT_TRUE(collector_.receive(group_[2], sent));
  }
  for (uint32_t i = 0; i < kPackets; ++i) {
    ASSERT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
    ASSERT_EQ(collector_.packets[i].payload, pattern(sizes[i], i));
  }
}

TEST_P(UdpPortPair, ReceivesAboutABudget) {
  for (uint32_t i = 0; i < 40; ++i) {
    // Packets of growing sizes do not merge.
    send(write_middle(2, i, 4 * i), pattern(4 * i, i));
  }
  group_[1].flush();
  uint32_t total = 0;
  for (uint32_t got = 1; got != 0; total += got) {
    got = group_[2].receive(collector_, 3);
    EXPECT_LE(got, 3u);
  }
  EXPECT_EQ(total, 40u);
  EXPECT_EQ(group_[2].receive(collector_, 3), 0u);
}

// Returns a readable page followed by an inaccessible one. The second stays mapped: another allocation could
// take the place of a hole.
void* readable_then_not(size_t page) {
  void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) mprotect(static_cast<std::byte*>(memory) + page, page, PROT_NONE);
  return memory;
}

TEST_P(UdpPortPair, AFaultInThePayloadSendsNothingAndDoesNoHarm) {
  const size_t page = 4096;
  void* const memory = readable_then_not(page);
  ASSERT_NE(memory, MAP_FAILED);
  const ConstBytes half_gone(static_cast<std::byte*>(memory) + page / 2, page);

  EXPECT_EQ(send(write_middle(2, 0, 4096), half_gone), SendStatus::kFault);  // the first packet of a run
  EXPECT_EQ(send(write_middle(2, 1, 4096), pattern(4096, 1)), SendStatus::kSent);
  EXPECT_EQ(send(write_middle(2, 2, 4096), half_gone), SendStatus::kFault);  // inside a run
  EXPECT_EQ(send(write_middle(2, 3, 4096), pattern(4096, 3)), SendStatus::kSent);
  EXPECT_TRUE(group_[1].flush());
  ASSERT_TRUE(collector_.receive(group_[2], 2));
  EXPECT_EQ(collector_.packets[0].payload, pattern(4096, 1));
  EXPECT_EQ(collector_.packets[1].payload, pattern(4096, 3));
  EXPECT_EQ(group_[1].counters().sent_packets, 2u);
  EXPECT_EQ(group_[2].counters().received_packets, 2u);
  munmap(memory, 2 * page);
}

TEST_P(UdpPortPair, ManyFaultsLeaveRoomForOthers) {
  const ConstBytes gone(reinterpret_cast<const std::byte*>(16), 256);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(send(write_middle(2, 0, 256), gone), SendStatus::kFault);
  EXPECT_EQ(send(write_middle(2, 1, 256), pattern(256, 1)), SendStatus::kSent);
  EXPECT_TRUE(group_[1].flush());
  EXPECT_TRUE(collector_.receive(group_[2], 1));
}

// ---- trains

transport::PacketTrain train_of(const roce::Path& path, ConstBytes payload, uint32_t packet_payload,
                                uint32_t first_psn, bool asks) {
  const roce::Headers headers = write_middle(2, first_psn, packet_payload);
  return {.path = path,
          .headers = {.opcode = headers.opcode,
                      .ack_request = asks,
                      .destination = headers.destination,
                      .psn = headers.psn},
          .payload = payload.data(),
          .packet_payload = packet_payload,
          .count = static_cast<uint32_t>(payload.size() / packet_payload)};
}

// Trains across the ends of super-packets, also with a shorter or longer packet already staged. Each packet
// arrives once, in order and intact, with the exact ICRC for its identification.
TEST_P(UdpPortPair, ATrainArrivesAsItsPackets) {
  for (const uint32_t size : {256, 1024, 4096}) {
    for (const uint32_t staged : {0, 1, 3}) {
      const uint32_t count = 60;
      const std::vector<std::byte> payload = pattern(size_t{count} * size, size + staged);
      collector_.packets.clear();
      for (uint32_t i = 0; i < staged; ++i) send(write_middle(2, 90 + i, size + 16), pattern(size + 16, i));
      const auto sent = group_[1].send_train(train_of(path_, payload, size, 0xfffff0, true));
      EXPECT_EQ(sent.packets, count);
      EXPECT_EQ(sent.status, SendStatus::kSent);
      EXPECT_EQ(send(acknowledge(2, 7), {}), SendStatus::kSent);
      group_[1].flush();
      ASSERT_TRUE(collector_.receive(group_[2], staged + count + 1)) << size << " bytes, " << staged;
      for (uint32_t i = 0; i < count; ++i) {
        const Collector::Received& got = collector_.packets[staged + i];
        EXPECT_EQ(got.headers.psn, roce::Psn(0xfffff0) + i);
        EXPECT_EQ(got.headers.ack_request, i + 1 == count);
        EXPECT_EQ(got.headers.opcode, write_middle(2, 0, size).opcode);
        EXPECT_TRUE(std::ranges::equal(got.payload, ConstBytes(payload).subspan(size_t{i} * size, size)))
            << i;
      }
    }
  }
  EXPECT_EQ(group_[2].counters().dropped[static_cast<size_t>(DropReason::kBadIcrc)], 0u);
}

// If the sender keeps the memory unchanged, the port may send without a copy.
TEST_P(UdpPortPair, ATrainArrivesWhoseSenderKeepsItsBlocks) {
  constexpr uint32_t kSize = 1024;
  constexpr uint32_t kCount = 60;
  transport::BlockPins pins;
  uint32_t most = 0;
  for (uint32_t round = 0; round < 100; ++round) {
    collector_.packets.clear();
    const uint32_t psn = round * 2 * kCount;
    const auto first = pattern(size_t{kCount} * kSize, 2 * round);
    const auto second = pattern(size_t{kCount} * kSize, 2 * round + 1);
    for (const auto& [payload, at] : {std::pair(&first, psn), std::pair(&second, psn + kCount)}) {
      transport::PacketTrain train = train_of(path_, *payload, kSize, at, true);
      train.pins = &pins;
      ASSERT_EQ(group_[1].send_train(train).packets, kCount);
      group_[1].flush();
    }
    most = std::max(most, pins.count());
    ASSERT_TRUE(collector_.receive(group_[2], 2 * kCount)) << round;
    for (uint32_t i = 0; i < 2 * kCount; ++i) {
      const ConstBytes whole = i < kCount ? first : second;
      ASSERT_TRUE(
          std::ranges::equal(collector_.packets[i].payload, whole.subspan(size_t{i % kCount} * kSize, kSize)))
          << round << ", " << i;
    }
    // Blocks are not released in each round: in some rounds none is left, and the port copies.
    if (round % 40 == 39) pins.release_before(roce::Psn(psn + 2 * kCount));
  }
  EXPECT_GT(most, 1u);
  EXPECT_LT(pins.count(), most);
  EXPECT_EQ(group_[2].counters().dropped[static_cast<size_t>(DropReason::kBadIcrc)], 0u);
}

// A peer that lies acknowledges what it has not read, and reads later.
TEST_P(UdpPortPair, ATrainThatIsReadLateHasNothingOfOtherReceivers) {
  constexpr uint32_t kSize = 1024;
  constexpr uint32_t kCount = 60;
  const auto payload = pattern(size_t{kCount} * kSize, 1);
  const auto of_others = pattern(size_t{kCount} * kSize, 2);
  transport::BlockPins pins;
  transport::PacketTrain train = train_of(path_, payload, kSize, 0, true);
  train.pins = &pins;
  ASSERT_EQ(group_[1].send_train(train).packets, kCount);
  group_[1].flush();
  EXPECT_EQ(pins.count(), 1u);
  pins.clear();
  train.payload = of_others.data();
  train.headers.destination = roce::Qpn::in_slot(1, 5);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(group_[1].send_train(train).packets, kCount);
    group_[1].flush();
    EXPECT_EQ(pins.count(), 1u) << "not copied";
    pins.clear();
  }
  ASSERT_TRUE(collector_.receive(group_[2], kCount));
  for (uint32_t i = 0; i < kCount; ++i) {
    const ConstBytes whole = payload;
    EXPECT_TRUE(std::ranges::equal(collector_.packets[i].payload, whole.subspan(size_t{i} * kSize, kSize)))
        << i;
  }
  EXPECT_EQ(group_[2].counters().dropped[static_cast<size_t>(DropReason::kBadIcrc)], 0u);
}

TEST_P(UdpPortPair, ATrainEndsBeforeThePacketThatFaults) {
  const size_t page = 4096;
  void* const memory = readable_then_not(page);
  ASSERT_NE(memory, MAP_FAILED);
  const ConstBytes half_gone(static_cast<std::byte*>(memory), 2 * page);

  const auto some = group_[1].send_train(train_of(path_, half_gone, 1024, 0, true));
  EXPECT_EQ(some.packets, 4u);
  EXPECT_EQ(some.status, SendStatus::kFault);
  const auto none = group_[1].send_train(train_of(path_, half_gone.subspan(page), 1024, 4, true));
  EXPECT_EQ(none.packets, 0u);
  EXPECT_EQ(none.status, SendStatus::kFault);
  EXPECT_EQ(send(write_middle(2, 4, 1024), pattern(1024, 1)), SendStatus::kSent);
  EXPECT_TRUE(group_[1].flush());
  ASSERT_TRUE(collector_.receive(group_[2], 5));
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(collector_.packets[i].headers.psn, roce::Psn(i));
  EXPECT_EQ(group_[1].counters().sent_packets, 5u);
  munmap(memory, 2 * page);
}

INSTANTIATE_TEST_SUITE_P(Loopback, UdpPortPair, ::testing::Values("127.0.0.1", "::1"));

TEST(UdpPort, CountsPacketsWithoutARouteAndGoesOn) {
  PortGroup group(2);
  // The source is not an address of this host.
  EXPECT_EQ(send(group[1], path("198.51.100.1", "127.0.0.1"), write_middle(1, 0, 8), pattern(8, 1)),
            SendStatus::kSent);
  EXPECT_EQ(send(group[1], path("2001:db8::1", "::1"), write_middle(1, 0, 8), pattern(8, 1)),
            SendStatus::kSent);
  // The address families differ.
  EXPECT_EQ(send(group[1], path("::1", "127.0.0.1"), write_middle(1, 0, 8), pattern(8, 1)),
            SendStatus::kSent);
  EXPECT_TRUE(group[1].flush());
  EXPECT_EQ(group[1].counters().send_errors, 3u);
  EXPECT_EQ(group[1].counters().sent_packets, 0u);

  send(group[1], path("127.0.0.1", "127.0.0.1"), write_middle(1, 0, 8), pattern(8, 1));
  group[1].flush();
  Collector collector;
  EXPECT_TRUE(collector.receive(group[1], 1));
}

TEST(UdpPort, RefusesADescriptorThatIsNoReceiveSocket) {
  EXPECT_EQ(UdpPort::create(UniqueFd(), {}).error().code, EBADF);
  EXPECT_EQ(UdpPort::create(UniqueFd(socket(AF_UNIX, SOCK_DGRAM, 0)), {}).error().code, EAFNOSUPPORT);
  Result<UniqueFd> fd = open_receive_socket(0);
  ASSERT_TRUE(fd);
  UdpPortOptions options;
  options.slot = roce::Qpn::kSlots;
  EXPECT_EQ(UdpPort::create(std::move(*fd), options).error().code, EINVAL);
}

// The agent sends from UDP port 4791. Each packet has the right ICRC, also in a super-packet.
TEST_P(UdpPortPair, LeavesForSlotZeroFromThePortItself) {
  UdpPortOptions options;
  options.sends_from_port = true;
  PortGroup group(2, options);
  const auto say = [&](uint32_t slot, uint32_t psn) {
    testing::send(group[1], path_, write_middle(slot, psn, 256), pattern(256, psn));
  };
  path_.traffic_class = 0x68;
  path_.hop_limit = 3;
  for (uint32_t psn = 0; psn < 3; ++psn) say(0, psn);
  group[1].flush();
  ASSERT_TRUE(collector_.receive(group[0], 3));
  for (uint32_t psn = 0; psn < 3; ++psn) {
    EXPECT_EQ(collector_.packets[psn].source_port, group.port);
    EXPECT_EQ(collector_.packets[psn].payload, pattern(256, psn));
    EXPECT_EQ(collector_.packets[psn].path.source, path_.source);
    EXPECT_EQ(collector_.packets[psn].path.traffic_class, 0x68);
    EXPECT_EQ(collector_.packets[psn].path.hop_limit, 3);
  }
  Collector others;
  say(1, 3);
  group[1].flush();
  ASSERT_TRUE(others.receive(group[1], 1));
  EXPECT_NE(others.packets[0].source_port, group.port);
}

TEST(UdpPort, WorksOverAnIpv4OnlySocket) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  SocketAddress any{};
  any.ipv4.sin_family = AF_INET;
  ASSERT_EQ(bind(fd.get(), &any.generic, any.length()), 0);
  socklen_t length = sizeof any;
  ASSERT_EQ(getsockname(fd.get(), &any.generic, &length), 0);
  UdpPortOptions options;
  options.port = port_of(any);
  options.sends_from_port = true;
  auto port = UdpPort::create(std::move(fd), options);
  ASSERT_TRUE(port);
  send(**port, path("127.0.0.1", "127.0.0.1"), write_middle(0, 0, 8), pattern(8, 1));
  (*port)->flush();
  Collector collector;
  ASSERT_TRUE(collector.receive(**port, 1));
  EXPECT_EQ(collector.packets[0].path.source, address("127.0.0.1"));
  EXPECT_EQ(collector.packets[0].path.destination, address("127.0.0.1"));
  EXPECT_EQ(collector.packets[0].path.hop_limit, 64);
  EXPECT_EQ(collector.packets[0].source_port, options.port);
}

TEST(ReceiveSocket, ReportsThatThePortIsTaken) {
  UniqueFd other(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress any{};
  any.ipv6 = {};
  any.ipv6.sin6_family = AF_INET6;
  ASSERT_EQ(bind(other.get(), &any.generic, any.length()), 0);
  socklen_t length = sizeof any.ipv6;
  ASSERT_EQ(getsockname(other.get(), &any.generic, &length), 0);
  EXPECT_EQ(open_receive_socket(port_of(any)).error().code, EADDRINUSE);
}

TEST(DropReason, EachHasAName) {
  EXPECT_STREQ(kDropReasonNames[static_cast<size_t>(DropReason::kTruncated)], "truncated");
  EXPECT_STREQ(kDropReasonNames[static_cast<size_t>(DropReason::kForeignSlot)], "foreign_slot");
  EXPECT_STREQ(kDropReasonNames[static_cast<size_t>(DropReason::kBadSource)], "bad_source");
}

// Any user can read the probe's port in /proc/net/udp and send to it.
TEST(IdentificationProbe, TakesNoDatagramsOfOthers) {
  const roce::Path path = testing::path("127.0.0.1", "127.0.0.1");
  const auto measured = FragmentSocket::open(path, 1 << 16);
  ASSERT_TRUE(measured);
  IdentificationProbe probe((*measured)->socket());
  ASSERT_TRUE(probe.is_open());
  const UniqueFd stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto disturb = [&] {
    const std::array<std::byte, 200> data{};
    const SocketAddress there = destination_of(path, probe.port());
    ASSERT_GT(::sendto(stranger.get(), data.data(), data.size(), 0, &there.generic, there.length()), 0);
  };
  disturb();
  const auto first = probe.byte_of_next(0);
  disturb();
  const auto second = probe.byte_of_next(0);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*second, static_cast<uint8_t>(*first + 1));
}

}  // namespace
}  // namespace verbena::net::testing
