// SPDX-License-Identifier: Apache-2.0
// Messages to a shared receive queue for tag matching, as a QP handles them.
#include "adapter/transport/tag_matching.h"

#include <infiniband/tm_types.h>

#include "adapter/memory/window.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/transport/support/shared_test.h"

namespace verbena::transport {
namespace {

using testing::Contains;

constexpr uint64_t kTag = 0x1122334455667788;

class TagMatching : public SharedTest {
 protected:
  // Creates a queue with buffers for messages of our tag, and a QP that receives from it.
  void begin(uint32_t cq_entries = 16, int buffers = 4) {
    cq = *queues::CompletionQueue::create(cq_entries, &log);
    queue = *queues::SharedReceiveQueue::create({.requests = 16,
                                                 .sges = queues::kMaxSge,
                                                 .pd = kTestPd,
                                                 .listener = &limit,
                                                 .cq = cq.get(),
                                                 .tags = 16});
    e = std::make_unique<Endpoint<RcQueuePair>>(
        EndpointOptions{.recv_requests = 0, .keys = &memory.keys(), .srq = queue.get()});
    e->bring_up();
    for (int i = 0; i < buffers; ++i) {
      const ibv_sge sge = inbox.sge(static_cast<size_t>(i) * 4096, 4096);
      ASSERT_TRUE(queue->tags()->add({kTag, UINT64_MAX, 10u + static_cast<uint64_t>(i), {&sge, 1}}));
    }
  }

  std::vector<std::byte> message(uint8_t operation, size_t bytes) {
    ibv_tmh header{};
    header.opcode = operation;
    header.tag = htobe64(kTag);
    std::vector<std::byte> whole(sizeof header + bytes);
    std::memcpy(whole.data(), &header, sizeof header);
    return whole;
  }
  // A rendezvous message about 500 bytes of the peer's memory.
  std::vector<std::byte> rendezvous() {
    std::vector<std::byte> whole = message(IBV_TMH_RNDV, sizeof(ibv_rvh));
    ibv_rvh where{};
    where.va = htobe64(0x7000);
    where.rkey = htobe32(0x77);
    where.len = htobe32(500);
    std::memcpy(whole.data() + sizeof(ibv_tmh), &where, sizeof where);
    return whole;
  }
  void send(uint32_t psn, const std::vector<std::byte>& payload, uint32_t invalidated = 0) {
    roce::Headers headers =
        request(roce::Service::kRc, invalidated != 0 ? Op::kSendOnlyInvalidate : Op::kSendOnly, psn, payload);
    headers.invalidate_rkey = invalidated;
    EXPECT_EQ(e->receive(headers, payload), Verdict::kAccepted);
    e->qp->answer_lost_completions();
  }
  // Binds a type 2 window of the QP to the target, and returns its key.
  uint32_t bound_window() {
    Buffer& open = memory.add(4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    window = &memory.add_window(memory::RegionKind::kWindow2);
    ibv_mr mr{};
    mr.lkey = open.key();
    ibv_mw mw{};
    mw.rkey = window->key;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {&mw, ibv_inc_rkey(mw.rkey), {&mr, open.address(), 1000, IBV_ACCESS_REMOTE_WRITE}};
    EXPECT_TRUE(post_send(*e->qp, wr));
    e->transmit();
    EXPECT_NE(window->parent, nullptr);
    return window->key;
  }
  std::vector<Op> operations() {
    std::vector<Op> all;
    for (const SentPacket& packet : e->transmitted()) all.push_back(packet.operation());
    return all;
  }

  EventLog log;
  std::unique_ptr<queues::CompletionQueue> cq;
  std::unique_ptr<queues::SharedReceiveQueue> queue;
  std::unique_ptr<Endpoint<RcQueuePair>> e;
  memory::Region* window = nullptr;
};

// ---- invalidation

TEST_F(TagMatching, InvalidatesTheKeyThatAnEagerMessageNames) {
  begin();
  send(200, message(IBV_TMH_EAGER, 40), bound_window());
  EXPECT_EQ(window->parent, nullptr);
  EXPECT_EQ(e->completion(*cq).wr_id, 10u);
}

TEST_F(TagMatching, InvalidatesTheKeyThatARendezvousNames) {
  begin();
  send(200, rendezvous(), bound_window());
  EXPECT_EQ(window->parent, nullptr);
  EXPECT_EQ(e->completion(*cq).wr_id, 10u) << "the match";
  EXPECT_THAT(operations(), Contains(Op::kReadRequest));
}

TEST_F(TagMatching, InvalidatesTheKeyOfARendezvousThatIsLeftToSoftware) {
  begin(16, 0);
  const ibv_sge sge = inbox.sge(0, 100);  // shorter than the payload to be fetched
  ASSERT_TRUE(queue->tags()->add({kTag, UINT64_MAX, 10, {&sge, 1}}));
  send(200, rendezvous(), bound_window());
  EXPECT_EQ(window->parent, nullptr);
  EXPECT_EQ(e->completion(*cq).status, IBV_WC_TM_RNDV_INCOMPLETE);
}

TEST_F(TagMatching, RefusesARendezvousWhoseKeyCannotBeInvalidated) {
  begin();
  send(200, rendezvous(), bound_window() ^ 0x1000);
  EXPECT_NE(window->parent, nullptr);
  expect_answer(*e, roce::nak_syndrome(NakCode::kRemoteAccess), 200);
  EXPECT_NE(queue->tags()->find(kTag), nullptr) << "the buffer is kept";
  ibv_wc wc;
  EXPECT_EQ(cq->poll(1, &wc), 0);
}

// ---- full completion queues

TEST_F(TagMatching, EndsTheQueuePairWhoseMatchFindsNoPlace) {
  begin(1);
  send(200, message(IBV_TMH_EAGER, 40));
  send(201, message(IBV_TMH_EAGER, 40));
  EXPECT_EQ(e->qp->state(), IBV_QPS_RTS);
  send(202, message(IBV_TMH_EAGER, 40));
  EXPECT_EQ(log.overflows, 1);
  EXPECT_EQ(e->qp->state(), IBV_QPS_ERR);
  EXPECT_THAT(e->log.events, Contains(IBV_EVENT_QP_FATAL));
}

TEST_F(TagMatching, EndsTheQueuePairWhoseFetchedDataFindsNoPlace) {
  begin(1);
  send(200, message(IBV_TMH_EAGER, 40));
  send(201, rendezvous());
  EXPECT_EQ(e->qp->state(), IBV_QPS_RTS) << "the match has found its place";
  const auto packets = e->transmitted();
  const auto read = std::ranges::find(packets, Op::kReadRequest, &SentPacket::operation);
  ASSERT_NE(read, packets.end());
  roce::Headers first = headers_of(roce::Service::kRc, Op::kReadResponseFirst, read->psn());
  first.syndrome = roce::ack_syndrome();
  e->receive(first, data(256));
  roce::Headers last = headers_of(roce::Service::kRc, Op::kReadResponseLast, read->psn() + 1);
  last.syndrome = roce::ack_syndrome();
  e->receive(last, data(244, 256));
  e->qp->answer_lost_completions();
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(4096, 500), data(500)));
  EXPECT_EQ(log.overflows, 1);
  EXPECT_EQ(e->qp->state(), IBV_QPS_ERR);
  EXPECT_THAT(e->log.events, Contains(IBV_EVENT_QP_FATAL));
}

}  // namespace
}  // namespace verbena::transport
