// SPDX-License-Identifier: Apache-2.0
// Small messages by memory that wait for each other: only in a stream of them, only for an application that
// polls, and not for long.
#include "adapter/engine/driving.h"
#include "adapter/engine/support/shard_test.h"
#include "adapter/transport/support/recording_sink.h"

namespace verbena::engine {
namespace {

using roce::Operation;

// One way by memory, to everybody.
class OneWay final : public LocalWays {
 public:
  const transport::Route* find(const roce::Path&, roce::Qpn) override { return &route_; }
  const transport::Route* find_open(const roce::Path&, roce::Qpn) override { return &route_; }
  const transport::Route& find_group(const roce::Path&, const transport::Route& by_port) override {
    return by_port;
  }
  bool is_full(uint32_t) const override { return false; }
  protocol::QpWay way(uint32_t) const override { return protocol::QpWay::kMemory; }
  void note_full(uint32_t) override {}
  void wait(transport::QueuePair&) override {}
  bool is_quiet() const override { return true; }
  bool flush(ReadyList&) override { return false; }
  void push() override {}

  transport::RecordingSink sink;

 private:
  transport::Route route_{.traits = {.lossless = true}, .sink = &sink, .port = kFirst + 1};
};

class ShardGathering : public ShardTest {
 protected:
  static constexpr Duration kSoon = std::chrono::nanoseconds(200);

  ShardGathering() {
    shard->exclusively([this] { shard->set_local_ways(&ways); });
    messages = make();
    engine_starts();
    application_takes_over();
    post();  // begins the stream
    messages->gathers = true;
    take();
  }
  ~ShardGathering() override {
    shard->exclusively([this] {
      if (messages != nullptr) shard->remove(*messages);
      shard->set_local_ways(nullptr);
    });
  }

  std::unique_ptr<ScriptedQp> make() {
    auto made = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes());
    made->sends_at_once = true;
    add(*made);
    return made;
  }
  void post() {
    passes(kSoon);
    messages->post();
    shard->ring(*messages);
  }
  // How many have left since the last time.
  size_t take() { return std::exchange(ways.sink.packets, {}).size(); }

  OneWay ways;
  std::unique_ptr<ScriptedQp> messages;
};

TEST_F(ShardGathering, WaitUntilTheNextPoll) {
  post();
  post();
  EXPECT_EQ(take(), 0u);
  shard->poll();
  EXPECT_EQ(take(), 2u);
}

TEST_F(ShardGathering, GoWhenEnoughAreTogether) {
  post();
  messages->gathers = false;
  post();
  EXPECT_EQ(take(), 2u);
  shard->poll();
  EXPECT_EQ(take(), 0u);
}

TEST_F(ShardGathering, TheFirstAfterAPauseGoesAtOnce) {
  passes(kGathersFor);
  post();
  EXPECT_EQ(take(), 1u);
}

TEST_F(ShardGathering, WaitForAFewMicrosecondsAtMost) {
  size_t waited = 0;
  for (Duration past{}; past <= kGathersFor; past += kSoon) {
    post();
    ++waited;
  }
  post();
  EXPECT_EQ(take(), waited + 1);
}

TEST_F(ShardGathering, NothingWaitsWhileTheEngineListens) {
  polling_stops();
  post();
  post();
  EXPECT_EQ(take(), 2u);
}

TEST_F(ShardGathering, GoWithTheEnginesNextLook) {
  post();
  shard->run_engine();
  EXPECT_EQ(take(), 1u);
}

TEST_F(ShardGathering, GoBeforeTheApplicationSleeps) {
  post();
  shard->expect_sleep();
  EXPECT_EQ(take(), 1u);
}

TEST_F(ShardGathering, GoBeforeTheProcessExits) {
  post();
  shard->flush_at_exit();
  EXPECT_EQ(take(), 1u);
}

TEST_F(ShardGathering, GoWithAnybodyElseWhoHasTheLock) {
  post();
  shard->exclusively([] {});
  EXPECT_EQ(take(), 1u);
}

// Posted by another thread, which found the lock taken by one that posts elsewhere.
TEST_F(ShardGathering, GoWithWhatDoesNotWait) {
  const auto other = make();
  post();
  other->post();
  other->on_transmit = [this] {
    messages->gathers = false;
    messages->post();
    shard->ring(*messages);
  };
  shard->ring(*other);
  EXPECT_EQ(take(), 3u);
  shard->exclusively([&] { shard->remove(*other); });
}

TEST_F(ShardGathering, HoldUpNobodyElse) {
  const auto other = make();
  post();
  other->post();
  shard->ring(*other);
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(other->unsent(), 0u);
  EXPECT_EQ(messages->unsent(), 1u);
  shard->exclusively([&] { shard->remove(*other); });
}

TEST_F(ShardGathering, GoBeforeTheirQueuePairDoes) {
  post();
  shard->exclusively([this] {
    shard->remove(*messages);
    EXPECT_EQ(take(), 1u);
  });
  messages.reset();
  shard->poll();
  EXPECT_EQ(take(), 0u);
}

TEST_F(ShardGathering, DoNotWaitForThoseOfAnother) {
  const auto other = make();
  other->gathers = true;
  const auto post_other = [&] {
    passes(kSoon);
    other->post();
    shard->ring(*other);
  };
  for (Duration past{}; past <= kGathersFor; past += 2 * kSoon) {
    post();
    post_other();
  }
  post();
  EXPECT_EQ(messages->unsent(), 0u);
  EXPECT_EQ(other->unsent(), 0u);
  shard->exclusively([&] { shard->remove(*other); });
}

TEST_F(ShardGathering, AcknowledgementsGoBeforeTheirQueuePairDoes) {
  packet_arrives_for(messages->config().qpn);
  shard->poll();
  post();
  shard->exclusively([this] {
    shard->remove(*messages);
    EXPECT_EQ(take(), 2u);
  });
  messages.reset();
}

}  // namespace
}  // namespace verbena::engine
