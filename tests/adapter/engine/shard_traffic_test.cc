// SPDX-License-Identifier: Apache-2.0
// Reliable connections through two shards, with the real transport.
#include <functional>
#include <thread>

#include "adapter/engine/support/host.h"
#include "base/random.h"

namespace verbena::engine {
namespace {

using std::chrono::seconds;

class ShardTraffic : public testing::Test {
 protected:
  // Waits until something is so; false after a time that only a bug can take.
  template <class Condition>
  static bool eventually(Condition condition) {
    const TimePoint patience = MonotonicClock::now() + seconds(30);
    while (!condition()) {
      if (MonotonicClock::now() > patience) return false;
      std::this_thread::yield();
    }
    return true;
  }
  static void expect_success(const ibv_wc& wc, uint64_t wr_id) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << "request " << wr_id;
    EXPECT_EQ(wc.wr_id, wr_id);
  }

  // What ibv_rc_pingpong does, one side of it, polling.
  static void play(Host& host, bool begins, int rounds) {
    const auto send = [&](int round) {
      std::memcpy(host.buffer.data(), &round, sizeof round);
      ASSERT_TRUE(host.post_send(IBV_WR_SEND, static_cast<uint64_t>(round), 0, 64));
    };
    host.post_recv(0, 4096, 64);
    if (begins) send(0);
    for (int round = 0; round < rounds; ++round) {
      ibv_wc wc{};
      ASSERT_TRUE(eventually([&] { return host.poll(*host.recv_cq, wc); })) << "round " << round;
      expect_success(wc, static_cast<uint64_t>(round));
      int received = -1;
      std::memcpy(&received, host.buffer.data() + 4096, sizeof received);
      EXPECT_EQ(received, round);
      host.post_recv(static_cast<uint64_t>(round) + 1, 4096, 64);
      if (!begins || round + 1 < rounds) send(begins ? round + 1 : round);
      while (host.poll(*host.send_cq, wc)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
    // The peer may still wait for an acknowledgement that we hold.
    ASSERT_TRUE(eventually([&] {
      ibv_wc wc{};
      host.poll(*host.send_cq, wc);
      return host.qp->send_queue().empty();
    }));
  }

  // b sleeps until its completion event. How a's application finds the end of its request: `completed(wc)`.
  void send_to_a_sleeping_receiver(int rounds, const std::function<bool(ibv_wc&)>& completed) {
    a.start_engine();
    b.start_engine();
    for (int round = 0; round < rounds; ++round) {
      const auto id = static_cast<uint64_t>(round);
      b.post_recv(id, 0, 64);
      b.request_notification(*b.recv_cq);
      ASSERT_TRUE(a.post_send(IBV_WR_SEND, id, 0, 64));
      ASSERT_TRUE(eventually([&] { return b.completion_events == round + 1; }));
      ibv_wc wc{};
      ASSERT_EQ(b.recv_cq->poll(1, &wc), 1);
      expect_success(wc, id);
      ASSERT_TRUE(eventually([&] { return completed(wc); }));
    }
  }

  // Without retries there is no timer that could hide a hang: where nothing is lost nothing is sent again.
  explicit ShardTraffic(uint8_t retries = 0, const transport::Traits& traits = net::kUdpTraits)
      : hosts(retries, traits) {}

  TwoHosts hosts;
  Host& a = hosts.a;
  Host& b = hosts.b;
};

// More retries than the verbs allow: on a busy machine a peer may not run for a while.
class ShardTrafficWithLoss : public ShardTraffic {
 protected:
  ShardTrafficWithLoss() : ShardTraffic(100) {}
};

// By ports without a descriptor: nobody is told of a packet.
class ShardTrafficThatMustBeAskedFor : public ShardTraffic {
 protected:
  ShardTrafficThatMustBeAskedFor() : ShardTraffic(0, kMustBeAsked) {}
};

class ShardTrafficWithoutPeer : public ShardTraffic {
 protected:
  ShardTrafficWithoutPeer() : ShardTraffic(7) {}
};

TEST_F(ShardTraffic, PingPongBetweenPollingApplicationsOfOneThread) {
  // No engine thread at all: everything is done by the verbs.
  for (int round = 0; round < 200; ++round) {
    const auto id = static_cast<uint64_t>(round);
    b.post_recv(id, 0, 64);
    ASSERT_TRUE(a.post_send(IBV_WR_SEND, id, 0, 64));
    ibv_wc wc{};
    ASSERT_TRUE(eventually([&] { return b.poll(*b.recv_cq, wc); }));
    expect_success(wc, id);
    ASSERT_TRUE(eventually([&] {
      ibv_wc ignored{};
      b.poll(*b.recv_cq, ignored);  // b comes back without a reply
      return a.poll(*a.send_cq, wc);
    }));
    expect_success(wc, id);
  }
  EXPECT_EQ(a.counter(transport::kRetransmittedPackets), 0u);
}

TEST_F(ShardTraffic, PingPongBetweenPollingApplicationsWithEngines) {
  constexpr int kRounds = 2000;
  a.start_engine();
  b.start_engine();
  std::thread server([&] { play(b, false, kRounds); });
  play(a, true, kRounds);
  server.join();
}

TEST_F(ShardTraffic, WriteReachesATargetThatCallsNoVerb) {
  a.start_engine();
  b.start_engine();
  Random random(1);
  for (std::byte& byte : a.buffer) byte = static_cast<std::byte>(random.next());
  for (uint64_t id = 0; id < 20; ++id) {
    const auto bytes = static_cast<uint32_t>(random.below(Host::kBufferBytes)) + 1;
    ASSERT_TRUE(a.post_send(IBV_WR_RDMA_WRITE, id, 0, bytes, &b));
    ibv_wc wc{};
    // Nor does the writer's application, until the completion is there.
    ASSERT_TRUE(eventually([&] { return a.send_cq->poll(1, &wc) == 1; })) << id;
    expect_success(wc, id);
    b.stop_engine();  // so that its memory is ours to look at
    EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data(), bytes), 0);
    b.start_engine();
  }
}

TEST_F(ShardTraffic, ReadIsAnsweredForATargetThatCallsNoVerb) {
  a.start_engine();
  b.start_engine();
  Random random(2);
  for (std::byte& byte : b.buffer) byte = static_cast<std::byte>(random.next());
  ASSERT_TRUE(a.post_send(IBV_WR_RDMA_READ, 1, 0, Host::kBufferBytes, &b));
  ibv_wc wc{};
  ASSERT_TRUE(eventually([&] { return a.poll(*a.send_cq, wc); }));
  expect_success(wc, 1);
  EXPECT_EQ(a.buffer, b.buffer);
}

TEST_F(ShardTrafficThatMustBeAskedFor, ProgressesForATargetThatCallsNoVerb) {
  b.start_engine();
  Random random(3);
  for (std::byte& byte : a.buffer) byte = static_cast<std::byte>(random.next());
  for (uint64_t id = 0; id < 10; ++id) {
    const auto bytes = static_cast<uint32_t>(random.below(Host::kBufferBytes)) + 1;
    ASSERT_TRUE(a.post_send(IBV_WR_RDMA_WRITE, 2 * id, 0, bytes, &b));
    ASSERT_TRUE(a.post_send(IBV_WR_RDMA_READ, 2 * id + 1, 0, bytes, &b));
    ibv_wc wc{};
    for (const uint64_t expected : {2 * id, 2 * id + 1}) {
      ASSERT_TRUE(eventually([&] { return a.poll(*a.send_cq, wc); })) << expected;
      expect_success(wc, expected);
    }
    b.stop_engine();  // so that its memory is ours to look at
    EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data(), bytes), 0);
    b.start_engine();
  }
}

TEST_F(ShardTrafficThatMustBeAskedFor, ProgressesForApplicationsThatSleep) {
  send_to_a_sleeping_receiver(20, [&](ibv_wc& wc) { return a.send_cq->poll(1, &wc) == 1; });
}

TEST_F(ShardTraffic, SleepingReceiverIsWokenByItsCompletionEvent) {
  send_to_a_sleeping_receiver(50, [&](ibv_wc& wc) { return a.poll(*a.send_cq, wc); });
}

// The acknowledgement of a message that was received by polling must not wait for another verb, nor for the
// sender to ask again.
TEST_F(ShardTraffic, ReceiverThatStopsPollingStillAcknowledges) {
  a.start_engine();
  b.start_engine();
  b.post_recv(7, 0, 64);
  for (int i = 0; i < 1000; ++i) b.shard->poll();  // b's application has taken over
  ASSERT_TRUE(a.post_send(IBV_WR_SEND, 7, 0, 64));
  ibv_wc wc{};
  ASSERT_TRUE(eventually([&] { return b.poll(*b.recv_cq, wc); }));
  ASSERT_TRUE(eventually([&] { return a.send_cq->poll(1, &wc) == 1; }));
  expect_success(wc, 7);
}

TEST_F(ShardTrafficWithLoss, EnginesResendWhatIsLost) {
  Random losses_of_a(3), losses_of_b(4);
  a.port->lose = [&](const roce::Headers&) { return losses_of_a.one_in(10); };
  b.port->lose = [&](const roce::Headers&) { return losses_of_b.one_in(10); };
  a.start_engine();
  b.start_engine();
  constexpr uint64_t kMessages = 300;
  uint64_t received = 0;
  uint64_t completed = 0;
  uint64_t posted_receives = 0;
  uint64_t posted = 0;
  for (; posted_receives < 32; ++posted_receives) b.post_recv(posted_receives, posted_receives * 2048, 2000);
  ASSERT_TRUE(eventually([&] {
    if (posted < kMessages && a.post_send(IBV_WR_SEND, posted, 0, 2000)) ++posted;
    ibv_wc wc{};
    while (a.send_cq->poll(1, &wc) == 1) expect_success(wc, completed++);
    while (b.recv_cq->poll(1, &wc) == 1) {
      expect_success(wc, received++);
      b.post_recv(posted_receives, posted_receives % 32 * 2048, 2000);
      ++posted_receives;
    }
    return completed == kMessages && received == kMessages;
  }));
  EXPECT_GT(a.counter(transport::kRetransmittedPackets), 0u);
}

TEST_F(ShardTrafficWithoutPeer, RequestsFailPromptly) {
  a.port->lose = [](const roce::Headers&) { return true; };
  a.start_engine();
  const TimePoint begin = MonotonicClock::now();
  ASSERT_TRUE(a.post_send(IBV_WR_SEND, 1, 0, 64));
  ASSERT_TRUE(a.post_send(IBV_WR_SEND, 2, 0, 64));
  ibv_wc wc{};
  ASSERT_TRUE(eventually([&] { return a.send_cq->poll(1, &wc) == 1; }));
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  ASSERT_TRUE(eventually([&] { return a.send_cq->poll(1, &wc) == 1; }));
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_LT(MonotonicClock::now() - begin, seconds(5));  // eight times 30 ms, and the machine's mood
}

}  // namespace
}  // namespace verbena::engine
