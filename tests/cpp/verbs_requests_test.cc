// SPDX-License-Identifier: Apache-2.0
// Work requests of the C++ API: each arrives, and what an operation does not have does not compile.
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/pair.h"

namespace verbena {
namespace {

using testing::fill;
using testing::next;
using testing::Pair;
using testing::text_of;

template <class Request>
concept can_be_inlined = requires(Request request) {
  request.inlined();
};
template <class Request>
concept can_have_immediate = requires(Request request) {
  request.immediate(1);
};
template <class Request>
concept can_invalidate = requires(Request request) {
  request.invalidating(1);
};
template <class Queue, class... Requests>
concept can_be_posted = requires(Queue queue, Requests... requests) {
  queue.post(requests...);
};

using sent = decltype(send(slice()));
using written = decltype(write(slice(), remote_slice()));
using fetched = decltype(read(slice(), remote_slice()));
using received = decltype(recv(slice()));
static_assert(can_be_inlined<sent> && can_be_inlined<written> && !can_be_inlined<fetched>);
static_assert(can_have_immediate<sent> && can_have_immediate<written> && !can_have_immediate<fetched>);
static_assert(can_invalidate<sent> && !can_invalidate<written>);
static_assert(can_be_posted<qp, sent, written> && can_be_posted<qp, received, received>);
static_assert(!can_be_posted<qp, sent, received> && !can_be_posted<srq, sent>);
static_assert(!can_be_posted<qp, ibv_send_wr>);

TEST(Send, ArrivesWithItsImmediate) {
  Pair pair;
  fill(pair.near.buffer, "hello");
  pair.far.pair.post(recv(pair.far.buffer.first(64)).numbered(1)).value();
  pair.near.pair.post(send(pair.near.buffer.first(5)).immediate(0x01020304).signaled(2)).value();
  EXPECT_EQ(next(pair.near_queue).wr_id, 2U);
  std::optional<ibv_wc> got;
  while (!got) {
    for (const completion& each : pair.far_queue.poll()) {
      EXPECT_TRUE(each.is_receive());
      EXPECT_EQ(each.bytes(), 5U);
      EXPECT_EQ(each.immediate(), 0x01020304U);
      EXPECT_EQ(each.invalidated(), std::nullopt);
      got = each.get();
    }
  }
  EXPECT_EQ(text_of(pair.far.buffer.first(5)), "hello");
}

TEST(Send, OfSeveralPartsIsOneMessage) {
  Pair pair;
  fill(pair.near.buffer, "abcdef");
  pair.far.pair.post(recv(pair.far.buffer.first(2), pair.far.buffer.part(100, 64))).value();
  pair.near.pair.post(send(pair.near.buffer.part(3, 3), pair.near.buffer.first(3)).signaled()).value();
  EXPECT_EQ(next(pair.far_queue).byte_len, 6U);
  EXPECT_EQ(text_of(pair.far.buffer.first(2)), "de");
  EXPECT_EQ(text_of(pair.far.buffer.part(100, 4)), "fabc");
}

TEST(Send, InlinedTakesUnregisteredMemory) {
  Pair pair;
  pair.far.pair.post(recv(pair.far.buffer)).value();
  {
    const char text[] = "gone";
    pair.near.pair.post(send(unregistered(text, 4)).inlined()).value();
  }
  EXPECT_EQ(next(pair.far_queue).byte_len, 4U);
  EXPECT_EQ(text_of(pair.far.buffer.first(4)), "gone");
  EXPECT_GE(pair.near.pair.max_inline(), 64U);
}

TEST(Write, OfAChainArrivesBeforeItsSend) {
  Pair pair;
  fill(pair.near.buffer, "payload!");
  pair.far.pair.post(recv(pair.far.buffer.last(64))).value();
  pair.near.pair
      .post(write(pair.near.buffer.first(8), pair.far.buffer.remote().part(16, 8)),
            send(pair.near.buffer.first(1)).signaled(9))
      .value();
  EXPECT_EQ(next(pair.far_queue).byte_len, 1U);
  EXPECT_EQ(text_of(pair.far.buffer.part(16, 8)), "payload!");
  EXPECT_EQ(next(pair.near_queue).wr_id, 9U);
}

TEST(Write, WithImmediateCompletesAReceive) {
  Pair pair;
  pair.far.pair.post(recv()).value();
  pair.near.pair.post(write(pair.near.buffer.first(8), pair.far.buffer.remote()).immediate(5)).value();
  const ibv_wc got = next(pair.far_queue);
  EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(be32toh(got.imm_data), 5U);
}

TEST(Read, FetchesThePeersMemory) {
  Pair pair;
  fill(pair.far.buffer.part(8), "there");
  pair.near.pair.post(read(pair.near.buffer.first(5), pair.far.buffer.remote().part(8, 5)).signaled())
      .value();
  EXPECT_EQ(next(pair.near_queue).opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(text_of(pair.near.buffer.first(5)), "there");
}

TEST(Atomics, ReturnTheOldValue) {
  Pair pair;
  auto& counter = pair.far.buffer.as<std::uint64_t>()[0];
  const auto& before = pair.near.buffer.as<std::uint64_t>()[0];
  counter = 40;
  pair.near.pair.post(fetch_add(pair.near.buffer.first(8), pair.far.buffer.remote(), 2).signaled()).value();
  EXPECT_EQ(next(pair.near_queue).status, IBV_WC_SUCCESS);
  EXPECT_EQ(before, 40U);
  EXPECT_EQ(counter, 42U);
  pair.near.pair.post(compare_swap(pair.near.buffer.first(8), pair.far.buffer.remote(), 42, 7).signaled())
      .value();
  EXPECT_EQ(next(pair.near_queue).status, IBV_WC_SUCCESS);
  EXPECT_EQ(before, 42U);
  EXPECT_EQ(counter, 7U);
}

TEST(Window, GivesAKeyThatThePeerInvalidates) {
  Pair pair;
  const memory_window window = pair.domain.make_window().value();
  const std::uint32_t key = ibv_inc_rkey(window.rkey());
  pair.far.pair
      .post(bind(window, key, pair.far.buffer, pair.far.buffer.first(64), access::remote_write).signaled())
      .value();
  EXPECT_EQ(next(pair.far_queue).opcode, IBV_WC_BIND_MW);
  remote_slice opened = pair.far.buffer.remote().first(64);
  opened.rkey = key;
  pair.far.pair.post(recv(pair.far.buffer.last(64))).value();
  fill(pair.near.buffer, "window");
  pair.near.pair
      .post(write(pair.near.buffer.first(6), opened),
            send(pair.near.buffer.first(1)).invalidating(key).signaled())
      .value();
  const ibv_wc got = next(pair.far_queue);
  EXPECT_EQ(got.wc_flags & IBV_WC_WITH_INV, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(text_of(pair.far.buffer.first(6)), "window");
  EXPECT_EQ(next(pair.near_queue).status, IBV_WC_SUCCESS);
  pair.near.pair.post(write(pair.near.buffer.first(6), opened).signaled()).value();
  EXPECT_EQ(next(pair.near_queue).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Errors, OfCompletionsSayWhatHappened) {
  Pair pair;
  remote_slice wrong = pair.far.buffer.remote();
  wrong.rkey ^= 1;
  pair.near.pair.post(write(pair.near.buffer.first(8), wrong).numbered(3)).value();
  for (bool seen = false; !seen;) {
    for (const completion& each : pair.near_queue.poll()) {
      seen = true;
      EXPECT_FALSE(each);
      EXPECT_EQ(each.id(), 3U);
      EXPECT_EQ(each.error().status(), IBV_WC_REM_ACCESS_ERR);
      EXPECT_NE(each.error().message().find("has another key"), std::string::npos) << each.error().message();
    }
  }
}

TEST(Post, ReportsTheFirstRequestThatDidNotFit) {
  Pair pair;
  const auto one = recv(pair.far.buffer.first(8));
  std::size_t posted = 0;
  result<void> last;
  while ((last = pair.far.pair.post(one, one))) posted += 2;
  EXPECT_EQ(last.error().code(), ENOMEM);
  EXPECT_LT(last.error().position(), 2U);
  EXPECT_GE(posted, 16U);
  EXPECT_STREQ(last.error().hint(), "the queue is full: take completions first");
}

TEST(Post, RefusesRequestsBeforeTheQueuePairIsConnected) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const cq queue = device.make_cq(4).value();
  const qp pair = domain.make_qp(rc, {.send_cq = queue}).value();
  const region memory = domain.allocate(64).value();
  EXPECT_EQ(pair.post(send(memory)).error().code(), EINVAL);
}

TEST(ToError, CompletesWhatIsPosted) {
  Pair pair;
  pair.near.pair.post(recv(pair.near.buffer).numbered(4)).value();
  pair.near.pair.to_error().value();
  const ibv_wc flushed = next(pair.near_queue);
  EXPECT_EQ(flushed.wr_id, 4U);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.near.pair.state().value(), IBV_QPS_ERR);
}

TEST(Datagram, ReachesThePeerThatItNames) {
  constexpr std::uint32_t kQkey = 0x11111111;
  Pair pair(ud);
  pair.near.pair.activate(kQkey).value();
  pair.far.pair.activate(kQkey).value();
  const endpoint there = pair.far.pair.local_endpoint().value();
  const address_handle address = pair.domain.make_address(there.gid()).value();
  fill(pair.near.buffer, "datagram");
  pair.far.pair.post(recv(pair.far.buffer)).value();
  pair.near.pair.post(send(pair.near.buffer.first(8)).to({address, there.qp_num(), kQkey}).signaled())
      .value();
  EXPECT_EQ(next(pair.far_queue).byte_len, 48U);
  EXPECT_EQ(text_of(pair.far.buffer.part(40, 8)), "datagram");
}

TEST(Chain, MayBeLongerThanWhatIsKnownAtCompileTime) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const cq queue = device.make_cq(128).value();
  const region memory = domain.allocate(4096).value();
  constexpr std::size_t kLength = 40;
  const qp_options wanted{.send_cq = queue, .max_send_wr = kLength, .max_recv_wr = kLength};
  const qp sender = domain.make_qp(rc, wanted).value();
  const qp receiver = domain.make_qp(rc, wanted).value();
  const auto index = static_cast<std::uint8_t>(device.choose_gid().value().gid_index);
  sender.connect(receiver.local_endpoint().value(), {.gid_index = index}).value();
  receiver.connect(sender.local_endpoint().value(), {.max_reads = 1, .max_peer_reads = 4}).value();
  std::vector<decltype(send(slice()))> chain;
  std::vector<decltype(recv(slice()))> receives(kLength, recv(memory.part(2048, 64)));
  receiver.post_all(std::span(receives)).value();
  for (std::size_t i = 0; i < kLength; ++i) {
    chain.push_back(i + 1 == kLength ? send(memory.first(i)).signaled(i) : send(memory.first(i)));
  }
  sender.post_all(std::span(chain)).value();
  std::size_t arrived = 0;
  for (std::size_t i = 0; i < kLength + 1; ++i) {
    const ibv_wc one = next(queue);
    if (one.opcode != IBV_WC_RECV) continue;
    EXPECT_EQ(one.byte_len, arrived);
    ++arrived;
  }
  EXPECT_EQ(arrived, kLength);
}

TEST(SharedReceiveQueue, ServesSeveralQueuePairs) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const cq sends = device.make_cq(8).value();
  const cq receives = device.make_cq(8).value();
  const srq shared = domain.make_srq({.max_wr = 8}).value();
  const region memory = domain.allocate(4096).value();
  shared.post(recv(memory.first(8)), recv(memory.part(8, 8))).value();
  std::vector<qp> all;
  for (int i = 0; i < 2; ++i) {
    qp sender = domain.make_qp(rc, {.send_cq = sends}).value();
    qp receiver = domain.make_qp(rc, {.send_cq = receives, .srq = &shared}).value();
    sender.connect(receiver.local_endpoint().value()).value();
    receiver.connect(sender.local_endpoint().value()).value();
    sender.post(send(memory.part(64, 8))).value();
    EXPECT_EQ(next(receives).qp_num, receiver.number());
    all.push_back(std::move(sender));
    all.push_back(std::move(receiver));
  }
  EXPECT_TRUE(shared.set_limit(1));
}

TEST(Xrc, SendsToTheSharedReceiveQueueThatIsNamed) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const cq sends = device.make_cq(8).value();
  const cq receives = device.make_cq(8).value();
  const xrc_domain shared = device.make_xrc_domain().value();
  const srq target = domain.make_srq({.domain = &shared, .xrc_cq = &receives}).value();
  const qp sender = domain.make_qp(transport::xrc_send, {.send_cq = sends}).value();
  const qp receiver = shared.make_receiver().value();
  sender.connect(receiver.local_endpoint().value()).value();
  receiver.connect(sender.local_endpoint().value()).value();
  const region memory = domain.allocate(4096).value();
  fill(memory, "by XRC");
  target.post(recv(memory.part(64, 8)).numbered(5)).value();
  sender.post(send(memory.first(6)).to_srq(target.number().value()).signaled()).value();
  EXPECT_EQ(next(receives).wr_id, 5U);
  EXPECT_EQ(text_of(memory.part(64, 6)), "by XRC");
  EXPECT_EQ(next(sends).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena
