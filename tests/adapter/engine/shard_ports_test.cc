// SPDX-License-Identifier: Apache-2.0
// A shard with two ports: one for the paths of a certain link, one for all others.
#include <thread>

#include "adapter/engine/engine_thread.h"
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

using net::DropReason;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardPorts : public testing::Test {
 protected:
  static constexpr uint32_t kSlot = 3;
  static constexpr uint32_t kLink = 7;

  // One way in and out, and a QP that goes by it.
  struct Way {
    PacketQueue sent;
    PacketQueue arriving;
    QueuePort* port = nullptr;
    std::unique_ptr<ScriptedQp> qp;
  };

  explicit ShardPorts(const transport::Traits& traits = net::kUdpTraits) {
    net::PortList ports;
    for (Way* way : {&linked, &other}) {
      auto port = std::make_unique<QueuePort>(way->sent, way->arriving, traits);
      way->port = port.get();
      ports.push_back(std::move(port));
    }
    linked.port->leads = [](const roce::Path& path) { return path.interface_index == kLink; };
    shard = std::make_unique<Shard>(kSlot, std::move(ports), *status, /*beginning=*/5, now);
    shard->set_sleeper(&sleeper);
    add_qp(linked, kLink);
    add_qp(other, kLink + 1);
  }
  ~ShardPorts() override { shard->set_sleeper(nullptr); }

  void add_qp(Way& way, uint32_t interface_index) {
    roce::Path path;
    path.interface_index = interface_index;
    shard->exclusively([&] {
      if (way.qp != nullptr) shard->remove(*way.qp);
      way.qp = std::make_unique<ScriptedQp>(*shard->reserve_qpn(), &shard->routes(), path);
      shard->add(*way.qp);
    });
  }
  void arrive_by(Way& way, roce::Qpn destination) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.destination = destination;
    way.arriving.push(datagram(headers));
  }
  void post(Way& way, int requests = 1) {
    for (int i = 0; i < requests; ++i) way.qp->post();
    shard->ring(*way.qp);
  }
  static uint64_t dropped(const Way& way, DropReason reason) {
    return way.port->counters().dropped[static_cast<size_t>(reason)];
  }
  static TimePoint now() { return time_; }

  std::unique_ptr<protocol::StatusPage> status = std::make_unique<protocol::StatusPage>();
  Way linked;
  Way other;
  RecordingSleeper sleeper;
  std::unique_ptr<Shard> shard;

 private:
  static inline TimePoint time_{std::chrono::hours(1)};
};

TEST_F(ShardPorts, AQueuePairGoesByTheFirstThatLeadsToItsPeer) {
  post(linked, 2);
  post(other, 3);
  EXPECT_THAT(linked.sent.drain(), SizeIs(2));
  EXPECT_THAT(other.sent.drain(), SizeIs(3));
}

TEST_F(ShardPorts, WhereNoneLeadsPacketsAreLost) {
  other.port->leads = [](const roce::Path&) { return false; };
  add_qp(other, kLink + 2);
  post(other);
  EXPECT_EQ(other.qp->unsent(), 0u);
  EXPECT_THAT(other.sent.drain(), IsEmpty());
  EXPECT_THAT(linked.sent.drain(), IsEmpty());
}

TEST_F(ShardPorts, AreAllReceivedFrom) {
  arrive_by(linked, linked.qp->config().qpn);
  arrive_by(other, other.qp->config().qpn);
  arrive_by(other, linked.qp->config().qpn);  // by whichever it comes
  shard->poll();
  EXPECT_EQ(linked.qp->received, 2u);
  EXPECT_EQ(other.qp->received, 1u);
}

TEST_F(ShardPorts, CountTheirOwnDrops) {
  const roce::Qpn nobody = roce::Qpn::in_slot(kSlot, linked.qp->config().qpn.index() ^ 0x80);
  arrive_by(linked, nobody);
  arrive_by(other, nobody);
  arrive_by(other, nobody);
  arrive_by(other, roce::Qpn::in_slot(kSlot + 1, 5));
  shard->poll();
  EXPECT_EQ(dropped(linked, DropReason::kNoQueuePair), 1u);
  EXPECT_EQ(dropped(other, DropReason::kNoQueuePair), 2u);
  EXPECT_EQ(dropped(linked, DropReason::kForeignSlot), 0u);
  EXPECT_EQ(dropped(other, DropReason::kForeignSlot), 1u);
}

TEST_F(ShardPorts, AFullOneStopsOnlyItsOwnQueuePairs) {
  shard->run_engine();
  linked.sent.set_capacity(2);
  post(linked, 10);
  ASSERT_GT(linked.qp->unsent(), 0u);
  post(other, 10);
  EXPECT_EQ(other.qp->unsent(), 0u);
  EXPECT_THAT(other.sent.drain(), SizeIs(10));
  EXPECT_EQ(shard->run_engine().send_fd, linked.sent.writable_fd());
  size_t left = 0;
  for (int i = 0; i < 10 && left < 10; ++i) {
    left += linked.sent.drain().size();
    shard->run_engine();
  }
  EXPECT_EQ(left, 10u);
  EXPECT_EQ(linked.qp->unsent(), 0u);
}

TEST_F(ShardPorts, AFullOneStopsNobodyWhoHasNoRoute) {
  ScriptedQp raw(*shard->exclusively([&] { return shard->reserve_qpn(); }));
  shard->exclusively([&] { shard->add(raw); });
  shard->run_engine();
  linked.sent.set_capacity(2);
  post(linked, 10);
  raw.post();
  shard->ring(raw);
  EXPECT_EQ(raw.unsent(), 0u);
  shard->exclusively([&] { shard->remove(raw); });
}

TEST_F(ShardPorts, SeveralFullOnesAreTriedAgainSoon) {
  shard->run_engine();
  for (Way* way : {&linked, &other}) {
    way->sent.set_capacity(2);
    post(*way, 10);
  }
  const Shard::EngineView view = shard->run_engine();
  EXPECT_EQ(view.send_fd, -1) << "one descriptor would not do";
  EXPECT_GT(view.wake_at, now());
  EXPECT_LE(view.wake_at, now() + milliseconds(1));
}

TEST_F(ShardPorts, AQueuePairMayGoWhileItWaits) {
  shard->run_engine();
  linked.sent.set_capacity(2);
  post(linked, 10);
  ASSERT_GT(linked.qp->unsent(), 0u);
  shard->exclusively([&] { shard->remove(*linked.qp); });
  linked.qp.reset();
  linked.sent.drain();
  shard->run_engine();
  shard->poll();
}

TEST_F(ShardPorts, NeedNobodyWhoAsksThem) {
  EXPECT_EQ(shard->run_engine().wake_at, kNever);
}

// The engine thread hears each of them.
TEST_F(ShardPorts, WakeTheEngineThread) {
  shard->set_sleeper(nullptr);
  auto engine = EngineThread::start(*shard, -1, [] { return -1; });
  ASSERT_TRUE(engine);
  const TimePoint patience = MonotonicClock::now() + std::chrono::seconds(30);
  for (Way* way : {&linked, &other, &linked}) {
    const auto received = [&] { return shard->exclusively([&] { return way->qp->received; }); };
    const uint32_t before = received();
    arrive_by(*way, way->qp->config().qpn);
    while (received() == before) {
      ASSERT_LT(MonotonicClock::now(), patience);
      std::this_thread::yield();
    }
  }
}

class ShardPortsThatMustBeAsked : public ShardPorts {
 protected:
  ShardPortsThatMustBeAsked() : ShardPorts(kMustBeAsked) {}
};

TEST_F(ShardPortsThatMustBeAsked, AreAskedWhileThereAreQueuePairs) {
  EXPECT_LE(shard->run_engine().wake_at, now() + milliseconds(1));
  arrive_by(other, other.qp->config().qpn);
  shard->run_engine();
  EXPECT_EQ(other.qp->received, 1u);
  shard->exclusively([&] {
    shard->remove(*linked.qp);
    shard->remove(*other.qp);
  });
  EXPECT_EQ(shard->run_engine().wake_at, kNever) << "nobody can be waiting for packets";
}

TEST_F(ShardPortsThatMustBeAsked, AreAskedAsSoonAsThereIsAQueuePair) {
  shard->exclusively([&] {
    shard->remove(*linked.qp);
    shard->remove(*other.qp);
  });
  ASSERT_EQ(shard->run_engine().wake_at, kNever);
  sleeper.said();
  ScriptedQp first(*shard->exclusively([&] { return shard->reserve_qpn(); }), &shard->routes());
  shard->exclusively([&] { shard->add(first); });
  EXPECT_THAT(sleeper.said(), ElementsAre("wake"));
  EXPECT_LE(shard->run_engine().wake_at, now() + milliseconds(1));
  shard->exclusively([&] { shard->remove(first); });
}

}  // namespace
}  // namespace verbena::engine
