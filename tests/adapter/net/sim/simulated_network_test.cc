// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/simulated_network.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "adapter/memory/guarded.h"
#include "base/random.h"

namespace verbena::net {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;

roce::Address ipv4(uint8_t last) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  return roce::Address::from_ipv4(bytes);
}
roce::Address ipv6(uint8_t last) {
  roce::Address address;
  address.bytes = {0xfd, 0, 0, 1};
  address.bytes[15] = last;
  return address;
}

struct Arrived {
  uint32_t psn;
  std::vector<std::byte> payload;
  TimePoint at;
  friend bool operator==(const Arrived&, const Arrived&) = default;
};

class SimulatedNetworkTest : public testing::Test, public PacketHandler {
 protected:
  explicit SimulatedNetworkTest(uint64_t seed = 1) : network(seed) { memory::install_fault_guard(); }

  void on_packet(const transport::IncomingPacket& incoming) override {
    const roce::Packet& packet = incoming.packet;
    arrived.push_back(
        {packet.headers.psn.value(), {packet.payload.begin(), packet.payload.end()}, network.now()});
    EXPECT_EQ(incoming.path.source, from.address());
    EXPECT_EQ(incoming.path.destination, to.address());
    EXPECT_EQ(incoming.udp_bytes,
              roce::kBthBytes + packet.payload.size() + packet.headers.pad + roce::kIcrcBytes);
  }

  transport::SendStatus send(uint32_t psn, ConstBytes payload) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.psn = roce::Psn(psn);
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    roce::Path path;
    path.source = from.address();
    path.destination = to.address();
    return from.send({path, headers, {&payload, 1}, static_cast<uint32_t>(payload.size())});
  }
  std::vector<std::byte> data(size_t bytes, uint64_t seed) {
    std::vector<std::byte> all(bytes);
    Random random(seed);
    for (std::byte& b : all) b = static_cast<std::byte>(random.next());
    return all;
  }
  // Sends `count` packets of random lengths.
  void send_many(uint32_t count, uint64_t seed = 3) {
    Random random(seed);
    for (uint32_t psn = 0; psn < count; ++psn) {
      if (psn % 10 == 0) from.flush();
      send(psn, data(random.below(300), psn));
    }
  }
  // Runs until everything has arrived.
  void run() {
    while (network.next_arrival() != kNever) {
      network.advance_to(std::max(network.now(), network.next_arrival()));
      while (to.receive(*this, 16) != 0) {
      }
    }
  }
  std::vector<uint32_t> psns() {
    std::vector<uint32_t> all;
    for (const Arrived& a : arrived) all.push_back(a.psn);
    return all;
  }
  void expect_intact() {
    for (const Arrived& a : arrived) {
      EXPECT_EQ(a.payload, data(a.payload.size(), a.psn));
    }
  }

  SimulatedNetwork network;
  SimulatedPort& from = network.add_port(ipv4(1));
  SimulatedPort& to = network.add_port(ipv4(2));
  std::vector<Arrived> arrived;
};

TEST_F(SimulatedNetworkTest, DeliversInOrderAndIntactAfterItsDelay) {
  const TimePoint start = network.now();
  network.conditions().delay = microseconds(7);
  send_many(100);
  EXPECT_EQ(to.receive(*this, 100), 0u) << "nothing arrives before its time";
  EXPECT_EQ(network.next_arrival(), start + microseconds(7));
  run();
  ASSERT_EQ(arrived.size(), 100u);
  for (uint32_t psn = 0; psn < 100; ++psn) EXPECT_EQ(arrived[psn].psn, psn);
  expect_intact();
}

TEST_F(SimulatedNetworkTest, ReceivesNoMoreThanItsBudget) {
  send_many(10);
  network.advance_to(network.next_arrival());
  EXPECT_EQ(to.receive(*this, 4), 4u);
  EXPECT_EQ(to.receive(*this, 100), 6u);
}

TEST_F(SimulatedNetworkTest, LosesAsManyAsAsked) {
  network.conditions().loss = 100'000;
  send_many(10'000);
  run();
  EXPECT_NEAR(static_cast<double>(arrived.size()), 9000, 150);
  EXPECT_EQ(arrived.size() + network.counters().lost, 10'000u);
  expect_intact();
}

TEST_F(SimulatedNetworkTest, DoublesAndReorders) {
  network.conditions().duplication = 50'000;
  network.conditions().reordering = 50'000;
  network.conditions().bytes_per_second = 1'000'000'000;
  network.conditions().queue_bytes = 1 << 30;
  send_many(10'000);
  run();
  EXPECT_EQ(arrived.size(), 10'000 + network.counters().duplicated);
  EXPECT_NEAR(static_cast<double>(network.counters().duplicated), 500, 100);
  EXPECT_NEAR(static_cast<double>(network.counters().reordered), 500, 100);
  auto all = psns();
  EXPECT_FALSE(std::ranges::is_sorted(all));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.size(), 10'000u);
  expect_intact();
}

TEST_F(SimulatedNetworkTest, NeverDeliversWhatItCorrupted) {
  network.conditions().corruption = 1'000'000;
  send_many(10'000);
  run();
  // The rest are packets whose only damage is in the reserved byte, which the ICRC does not cover.
  expect_intact();
  EXPECT_LT(arrived.size(), 10'000u / 20);
  const uint64_t bad = to.counters().dropped[static_cast<size_t>(DropReason::kBadIcrc)];
  EXPECT_EQ(bad + arrived.size(), 10'000u);
}

TEST_F(SimulatedNetworkTest, LimitsTheRateAndLosesWhatDoesNotFitTheQueue) {
  network.conditions().bytes_per_second = 1'000'000;
  network.conditions().queue_bytes = 10'000;
  const auto payload = data(1000 - 66 - 16, 1);
  for (uint32_t psn = 0; psn < 100; ++psn) send(psn, payload);
  const TimePoint start = network.now();
  run();
  EXPECT_NEAR(static_cast<double>(arrived.size()), 11, 1);
  EXPECT_EQ(network.counters().overflowed + arrived.size(), 100u);
  const std::chrono::duration<double, std::milli> took = arrived.back().at - start;
  EXPECT_NEAR(took.count(), static_cast<double>(arrived.size()), 0.1);
}

TEST_F(SimulatedNetworkTest, IsBusySometimes) {
  network.conditions().busy = 500'000;
  uint32_t busy = 0;
  for (uint32_t psn = 0; psn < 1000; ++psn) busy += send(psn, {}) == transport::SendStatus::kBusy ? 1 : 0;
  EXPECT_NEAR(busy, 500, 60);
  run();
  EXPECT_EQ(arrived.size() + busy, 1000u);
}

TEST_F(SimulatedNetworkTest, LosesEverythingToAndFromAnIsolatedPort) {
  to.isolate(true);
  send(1, {});
  to.isolate(false);
  from.isolate(true);
  send(2, {});
  from.isolate(false);
  send(3, {});
  run();
  EXPECT_THAT(psns(), ElementsAre(3));
  EXPECT_EQ(network.counters().cut_off, 2u);
}

TEST_F(SimulatedNetworkTest, AnswersAFaultWhenThePayloadsMemoryIsGone) {
  void* gone = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  EXPECT_EQ(send(1, {static_cast<std::byte*>(gone), 100}), transport::SendStatus::kFault);
  munmap(gone, 4096);
  run();
  EXPECT_TRUE(arrived.empty());
}

TEST(SimulatedNetwork, DoesTheSameFromTheSameSeed) {
  const auto trace = [](uint64_t seed) {
    struct Run : SimulatedNetworkTest {
      explicit Run(uint64_t s) : SimulatedNetworkTest(s) {}
      void TestBody() override {
        network.conditions() = {
            .loss = 50'000, .duplication = 50'000, .reordering = 50'000, .corruption = 50'000};
        network.conditions().jitter = microseconds(3);
        send_many(1000);
        run();
      }
      using SimulatedNetworkTest::arrived;
    } run(seed);
    run.TestBody();
    return run.arrived;
  };
  EXPECT_EQ(trace(1), trace(1));
  EXPECT_NE(trace(1), trace(2));
}

TEST(SimulatedNetwork, SpeaksIpv6AndCatchesEveryCorruption) {
  struct Sink : PacketHandler {
    void on_packet(const transport::IncomingPacket& p) override {
      ++packets;
      psn_bits |= p.packet.headers.psn.value();
    }
    uint32_t packets = 0;
    uint32_t psn_bits = 0;
  } sink;
  SimulatedNetwork network(5);
  SimulatedPort& from = network.add_port(ipv6(1));
  SimulatedPort& to = network.add_port(ipv6(2));
  network.conditions().corruption = 500'000;
  roce::Path path;
  path.source = from.address();
  path.destination = to.address();
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
  for (int i = 0; i < 10'000; ++i) from.send({path, headers, {}, 0});
  network.advance_to(network.now() + microseconds(100));
  to.receive(sink, 100'000);
  const uint64_t whole = 10'000 - network.counters().corrupted;
  EXPECT_GE(sink.packets, whole);
  EXPECT_LE(sink.packets, whole + 500) << "more than the hits on the byte that is not covered";
  EXPECT_EQ(sink.psn_bits, 0u);
}

}  // namespace
}  // namespace verbena::net
