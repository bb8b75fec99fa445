// SPDX-License-Identifier: Apache-2.0
// One requester, one XRC target, and shared receive queues in three processes, the target's among them. The
// network between them loses and duplicates packets, and owners answer late. Every message must be executed
// once, in order, by the process that has its queue.
#include <array>
#include <map>

#include "adapter/transport/support/queue_owner.h"
#include "adapter/transport/support/shared_test.h"
#include "base/seed.h"

namespace verbena::transport {
namespace {

class PassingSimulation : public SharedTest, protected QueueOwners {
 protected:
  static constexpr uint64_t kDomain = 5;
  static constexpr uint32_t kMax = 700;  // bytes of the longest message: three packets
  static constexpr uint32_t kMessages = 400;
  static constexpr uint32_t kFirstPsn = 0xffff80;  // so that PSNs wrap

  // A shared receive queue that messages go to.
  struct Place {
    uint32_t number = 0;
    queues::CompletionQueue* cq = nullptr;
    queues::SharedReceiveQueue* srq = nullptr;
    Buffer* mailbox = nullptr;
    Buffer* open = nullptr;
    uint32_t posted = 0;
    std::vector<uint32_t> expected = {};  // numbers of the messages that take a receive, in order
  };

  void prepare(uint64_t seed) {
    random = Random(seed);
    requester.attributes().send_psn = roce::Psn(kFirstPsn);
    target.attributes().receive_psn = roce::Psn(kFirstPsn);
    requester.attributes().timeout = 10;
    requester.bring_up();
    target.bring_up(IBV_QPS_RTR);
    local_cq = *queues::CompletionQueue::create(1 << 12, &cq_log);
    local = *queues::SharedReceiveQueue::create({.requests = 1 << 10,
                                                 .sges = 2,
                                                 .pd = kTestPd,
                                                 .cq = local_cq.get(),
                                                 .number = *table.reserve(),
                                                 .xrc_domain = kDomain});
    table.add(*local);
    places[0] = {local->number(), local_cq.get(), local.get(), &memory.add(kMessages * kMax),
                 &memory.add(4096)};
    for (size_t i = 0; i < owners.size(); ++i) {
      QueueOwner& owner = owners[i];
      places[i + 1] = {owner.number(), owner.cq.get(), owner.srq.get(),
                       &owner.memory.add(kMessages * kMax, kAllAccess, QueueOwner::kPd),
                       &owner.memory.add(4096, kAllAccess, QueueOwner::kPd)};
    }
  }

  // Overrides of QueueOwners.
  uint32_t new_run() override { return ++last_run; }
  bool pass(const ForwardedRequest& request) override {
    QueueOwner* owner = owner_of(request.packet.headers.xrc_srq >> 14);
    if (owner == nullptr || random.below(50) == 0) return false;
    owner->queue(request);
    return true;
  }
  void end(const QueuePair&) override {}

  QueueOwner* owner_of(uint32_t slot) {
    for (QueueOwner& owner : owners) {
      if (owner.slot == slot) return &owner;
    }
    return nullptr;
  }

  // Returns a byte of a message; it follows from the message's number.
  static std::byte byte_of(uint32_t message, uint32_t at) { return static_cast<std::byte>(message * 7 + at); }

  void post_message(uint32_t message) {
    Place& place = places[random.below(places.size())];
    const uint32_t bytes = 1 + static_cast<uint32_t>(random.below(kMax));
    for (uint32_t i = 0; i < bytes; ++i) outbox.data()[message * kMax + i] = byte_of(message, i);
    ibv_sge piece = outbox.sge(message * kMax, bytes);
    ibv_send_wr wr{};
    wr.wr_id = message;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.qp_type.xrc.remote_srqn = place.number;
    wr.wr.rdma.remote_addr = place.open->address();
    wr.wr.rdma.rkey = place.open->key();
    switch (random.below(4)) {
      case 0:
        wr.opcode = IBV_WR_RDMA_READ;
        break;
      case 1:
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = place.open->address(2048);
        wr.wr.atomic.rkey = place.open->key();
        wr.wr.atomic.compare_add = 1;
        piece.length = 8;
        ++added[place.number];
        break;
      case 2:
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = message;
        place.expected.push_back(message);
        break;
      default:
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.imm_data = message;
        place.expected.push_back(message);
    }
    ASSERT_TRUE(transport::post_send(*requester.qp, wr));
  }

  void post_receive() {
    Place& place = places[random.below(places.size())];
    if (place.posted == kMessages) return;
    const uint32_t place_number = place.posted++;
    ibv_sge piece = place.mailbox->sge(place_number * kMax, kMax);
    SharedTest::post(*place.srq, place_number, piece);
  }

  // Takes the next packet that one end has sent, and delivers it once, twice or not at all.
  template <class To>
  void carry(RecordingSink& from, To& to) {
    if (from.packets.empty()) return;
    const SentPacket packet = from.take();
    const uint64_t fate = random.below(100);
    if (fate < 2) return;
    to.receive(packet.headers, packet.payload);
    if (fate < 4) to.receive(packet.headers, packet.payload);
  }

  void step() {
    QueueOwner& owner = owners[random.below(owners.size())];
    switch (random.below(9)) {
      case 0:
        requester.transmit();
        break;
      case 1:
        carry(requester.sink, target);
        break;
      case 2:
        target.transmit();
        break;
      case 3:
        carry(target.sink, requester);
        break;
      case 4:
        if (!owner.arriving.empty()) owner.take_next();
        break;
      case 5:
        owner.transmit(1 + static_cast<uint32_t>(random.below(3)));
        break;
      case 6:
        if (owner.answers.empty()) break;
        target.qp->on_owner_answer(owner.answers.front());
        owner.answers.pop_front();
        break;
      case 7:
        carry(owner.wire, requester);
        break;
      default:
        post_receive();
    }
    if (is_quiet() && requester.qp->deadline() != kNever) {
      requester.now = std::max(requester.now, requester.qp->deadline());
      requester.qp->on_timer(requester.now);
    }
  }
  bool is_quiet() const {
    bool quiet = requester.sink.packets.empty() && target.sink.packets.empty() &&
                 !requester.qp->has_urgent() && !target.qp->has_urgent() && !target.qp->has_acknowledgement();
    for (const QueueOwner& owner : owners) {
      quiet &= owner.arriving.empty() && owner.answers.empty() && owner.wire.packets.empty() &&
               (owner.stand_in == nullptr || !owner.stand_in->has_urgent());
    }
    return quiet;
  }

  void expect_received(Place& place) {
    for (const uint32_t message : place.expected) {
      ibv_wc wc{};
      ASSERT_EQ(place.cq->poll(1, &wc), 1) << "message " << message << " is missing";
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.imm_data, message);
      if (wc.opcode != IBV_WC_RECV) continue;
      const Bytes received = place.mailbox->bytes(wc.wr_id * kMax, wc.byte_len);
      for (uint32_t i = 0; i < wc.byte_len; ++i) ASSERT_EQ(received[i], byte_of(message, i));
    }
    EXPECT_TRUE(place.cq->empty()) << "something came twice";
    EXPECT_EQ(place.open->word(2048 / 8), added[place.number]);
  }

  Random random{1};
  uint32_t last_run = 0;
  queues::SharedReceiveQueueTable table{0};
  EventLog cq_log;
  std::unique_ptr<queues::CompletionQueue> local_cq;
  std::unique_ptr<queues::SharedReceiveQueue> local;
  std::array<QueueOwner, 2> owners{QueueOwner(1), QueueOwner(2)};
  std::array<Place, 3> places;
  std::map<uint32_t, uint64_t> added;
  Endpoint<XrcInitiator> requester{{.send_requests = 32, .recv_requests = 0}};
  Buffer& outbox = requester.memory.add(kMessages * kMax);
  Endpoint<XrcTarget> target{
      {.recv_requests = 0, .keys = &memory.keys(), .srqs = &table, .xrc_domain = kDomain, .owners = this}};
};

TEST_F(PassingSimulation, EveryMessageIsExecutedOnce) {
  prepare(test::seed());
  uint32_t posted = 0;
  uint32_t completed = 0;
  for (uint64_t steps = 0; completed < kMessages; ++steps) {
    ASSERT_LT(steps, 20'000'000u) << "it does not get on: " << completed << " of " << posted;
    if (posted < kMessages && posted - completed < 24 && random.below(10) == 0) post_message(posted++);
    step();
    ibv_wc wc;
    while (requester.send_cq->poll(1, &wc) == 1) {
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << "message " << wc.wr_id;
      ASSERT_EQ(wc.wr_id, completed++);
    }
  }
  for (Place& place : places) expect_received(place);
}

}  // namespace
}  // namespace verbena::transport
