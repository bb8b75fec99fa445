// SPDX-License-Identifier: Apache-2.0
// A shard and its port: full, absent, and packets for nobody.
#include "adapter/engine/status_mapping.h"
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

using net::DropReason;
using roce::Operation;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardPort : public ShardTest {
 protected:
  static constexpr uint32_t kPosts = 10;

  // The wire takes two packets, the port stages four: four of ten posted requests are not even staged.
  void fill() {
    sent_packets.set_capacity(2);
    for (uint32_t i = 0; i < kPosts; ++i) qp->post();
    shard->ring(*qp);
    ASSERT_EQ(qp->unsent(), 4u);
  }
};

TEST_F(ShardPort, FullPortIsTheEnginesBusinessWhileItListens) {
  engine_starts();
  fill();
  EXPECT_THAT(sleeper.said(), ElementsAre("wake"));
  const Shard::EngineView view = shard->run_engine();
  EXPECT_EQ(view.send_fd, sent_packets.writable_fd());
  EXPECT_LE(view.wake_at, now() + milliseconds(1)) << "the descriptor may stay silent";
}

TEST_F(ShardPort, EverythingLeavesOnceThereIsRoom) {
  engine_starts();
  fill();
  size_t left = sent().size();
  for (int i = 0; i < 10 && left < kPosts; ++i) {
    shard->run_engine();
    left += sent().size();
  }
  EXPECT_EQ(left, kPosts);
  EXPECT_EQ(shard->run_engine().send_fd, -1);
}

TEST_F(ShardPort, PollingApplicationPushesOnItself) {
  engine_starts();
  application_takes_over();
  fill();
  EXPECT_THAT(sleeper.said(), IsEmpty());
  size_t left = sent().size();
  for (int i = 0; i < 10 && left < kPosts; ++i) {
    shard->poll();
    left += sent().size();
  }
  EXPECT_EQ(left, kPosts);
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

TEST_F(ShardPort, FullPortWithoutADescriptorIsTriedAgain) {
  port->has_send_fd = false;
  engine_starts();
  fill();
  const TimePoint before = now();
  const Shard::EngineView view = shard->run_engine();
  EXPECT_EQ(view.send_fd, -1);
  EXPECT_GT(view.wake_at, before);
  EXPECT_LE(view.wake_at, now() + milliseconds(1));
}

TEST_F(ShardPort, QueuePairsTakeTurnsAtAFullPort) {
  engine_starts();
  ScriptedQp other(add_qpn(), &shard->routes());
  add(other);
  fill();
  for (uint32_t i = 0; i < 100; ++i) qp->post();
  shard->ring(*qp);
  other.post();
  shard->ring(other);
  for (int i = 0; i < 6; ++i) {  // what was staged, what the first still gets in, and then the other
    sent();
    shard->run_engine();
  }
  EXPECT_EQ(other.unsent(), 0u);
  EXPECT_GT(qp->unsent(), 0u);
}

TEST_F(ShardPort, FullPortKeepsTheAcknowledgementForLater) {
  engine_starts();
  fill();
  packet_arrives();
  shard->run_engine();
  std::vector<Operation> all = sent();
  for (int i = 0; i < 10; ++i) {
    shard->run_engine();
    for (const Operation operation : sent()) all.push_back(operation);
  }
  EXPECT_THAT(all, SizeIs(kPosts + 1));
  EXPECT_EQ(all.back(), Operation::kAcknowledge);
}

TEST_F(ShardPort, LongQueueIsSentToItsEnd) {
  engine_starts();
  constexpr size_t kMany = 3000;  // more than one turn's budget
  for (size_t i = 0; i < kMany; ++i) qp->post();
  shard->ring(*qp);
  EXPECT_THAT(sleeper.said(), ElementsAre("wake"));
  shard->run_engine();
  EXPECT_THAT(sent(), SizeIs(kMany));
}

TEST_F(ShardPort, LongTrafficDoesNotKeepTheEngineForEver) {
  engine_starts();
  for (int i = 0; i < 20000; ++i) packet_arrives();
  while (qp->received < 20000) {
    const uint32_t before = qp->received;
    shard->run_engine();
    ASSERT_GT(qp->received, before);
    ASSERT_LE(qp->received - before, 5000u);
  }
}

// ---- packets for nobody

TEST_F(ShardPort, PacketOfAnotherSlotIsDropped) {
  packet_arrives_for(roce::Qpn::in_slot(kSlot + 1, qp->config().qpn.index()));
  shard->poll();
  EXPECT_EQ(qp->received, 0u);
  EXPECT_EQ(dropped(DropReason::kForeignSlot), 1u);
}

TEST_F(ShardPort, PacketForNoQpIsDropped) {
  packet_arrives_for(roce::Qpn::in_slot(kSlot, qp->config().qpn.index() ^ 1));
  packet_arrives_for(roce::kMulticastQpn);
  shard->poll();
  EXPECT_EQ(dropped(DropReason::kNoQueuePair), 2u);
}

TEST_F(ShardPort, RemovedQpReceivesNothing) {
  shard->exclusively([&] { shard->remove(*qp); });
  packet_arrives();
  shard->poll();
  EXPECT_EQ(qp->received, 0u);
  EXPECT_EQ(dropped(DropReason::kNoQueuePair), 1u);
}

TEST(PortCounters, InTheStatusPageAreWhatItsReadersLookFor) {
  auto status = std::make_unique<protocol::StatusPage>();
  net::PortCounters& counters = port_counters_in(*status);
  ++counters.sent_packets;
  counters.received_packets += 2;
  ++counters.dropped[static_cast<size_t>(DropReason::kForeignSlot)];
  EXPECT_EQ(status->port[protocol::kPortSentPackets].load(), 1u);
  EXPECT_EQ(status->port[protocol::kPortReceivedPackets].load(), 2u);
  const auto foreign = protocol::kPortFirstDropReason + static_cast<size_t>(DropReason::kForeignSlot);
  EXPECT_EQ(status->port[foreign].load(), 1u);
}

// ---- no wire

TEST(ShardWithoutPort, LosesPacketsAndLivesOn) {
  auto status = std::make_unique<protocol::StatusPage>();
  RecordingSleeper sleeper;
  Shard shard(1, {}, *status, 5);
  shard.set_sleeper(&sleeper);
  ScriptedQp qp(roce::Qpn::in_slot(1, 7), &shard.routes());
  shard.exclusively([&] { shard.add(qp); });
  qp.post();
  shard.ring(qp);
  EXPECT_EQ(qp.unsent(), 0u);
  for (int i = 0; i < 100; ++i) shard.poll();
  EXPECT_EQ(shard.run_engine().send_fd, -1);
  shard.expect_sleep();
}

}  // namespace
}  // namespace verbena::engine
