// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/raw.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/support/test_routes.h"
#include "wire/ethernet/frames.h"

namespace verbena::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Frame = ethernet::testing::Frame;

// A sink that keeps the sent frames, in batches of four, and rejects frame number `refused`.
class RecordingFrames : public FrameSink {
 public:
  bool add(const OutgoingFrame& frame) override {
    if (batch_.size() == 4) return false;
    Frame bytes;
    for (const ConstBytes piece : frame.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    EXPECT_EQ(bytes.size(), frame.bytes);
    batch_.push_back(bytes);
    with_checksums.push_back(frame.checksums);
    return true;
  }
  Flushed flush() override {
    ++flushes;
    Flushed flushed{0, FrameStatus::kSent};
    for (Frame& frame : batch_) {
      if (sent.size() == refused) {
        flushed.status = why;
        break;
      }
      sent.push_back(frame);
      ++flushed.sent;
    }
    batch_.clear();
    return flushed;
  }

  std::vector<Frame> sent;
  std::vector<bool> with_checksums;
  size_t refused = SIZE_MAX;
  FrameStatus why = FrameStatus::kBusy;
  int flushes = 0;

 private:
  std::vector<Frame> batch_;
};

class RawTest : public ::testing::Test {
 protected:
  RawTest() {
    send_cq_ = *queues::CompletionQueue::create(256, &log_);
    recv_cq_ = *queues::CompletionQueue::create(256, &log_);
    make(false);
  }

  void make(bool strips_vlan) {
    qp_ = std::make_unique<RawQueuePair>(config(), *queues::SendQueue::create(64, 1024),
                                         *queues::RecvQueue::create(64, 512), &frames_, strips_vlan);
  }
  QpConfig config() {
    QpConfig config;
    config.qpn = roce::Qpn(0x11);
    config.pd = kTestPd;
    config.signal_all = true;
    config.send_cq = send_cq_.get();
    config.recv_cq = recv_cq_.get();
    config.keys = &memory_.keys();
    config.routes = &routes_;
    config.listener = &log_;
    config.counters = &counters_;
    return config;
  }
  void bring_up(ibv_qp_state to = IBV_QPS_RTS) {
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      qp_->enter(next);
      if (next == to) return;
    }
  }

  void post_send_of(Buffer& buffer, uint64_t wr_id, unsigned flags = 0, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_sge sge = buffer.sge();
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    ASSERT_TRUE(post_send(*qp_, wr));
  }
  void post_receive_into(const ibv_sge& sge, uint64_t wr_id) {
    ibv_sge copy = sge;
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &copy;
    wr.num_sge = 1;
    ASSERT_TRUE(post_recv(*qp_, wr));
  }
  TransmitResult transmit(uint32_t budget = 100) { return qp_->transmit(now_, budget, true); }
  void deliver(const Frame& frame, bool checksums_good = false) {
    const auto headers = ethernet::parse_headers(frame);
    qp_->on_frame({frame, *headers, 0, checksums_good});
  }
  static std::vector<ibv_wc> drain(queues::CompletionQueue& cq) {
    std::vector<ibv_wc> all(64);
    all.resize(static_cast<size_t>(std::max(0, cq.poll(64, all.data()))));
    return all;
  }
  std::vector<std::pair<uint64_t, ibv_wc_status>> sent() { return outcomes(drain(*send_cq_)); }
  std::vector<std::pair<uint64_t, ibv_wc_status>> received() { return outcomes(drain(*recv_cq_)); }
  static std::vector<std::pair<uint64_t, ibv_wc_status>> outcomes(const std::vector<ibv_wc>& entries) {
    std::vector<std::pair<uint64_t, ibv_wc_status>> found;
    for (const ibv_wc& wc : entries) found.emplace_back(wc.wr_id, wc.status);
    return found;
  }
  static std::pair<uint64_t, ibv_wc_status> good(uint64_t wr_id) { return {wr_id, IBV_WC_SUCCESS}; }
  static Frame content(Buffer& buffer) { return {buffer.data(), buffer.data() + buffer.size()}; }

  TestMemory memory_;
  EventLog log_;
  QpCounters counters_{};
  std::unique_ptr<queues::CompletionQueue> send_cq_, recv_cq_;
  RecordingFrames frames_;
  RecordingSink no_wire_;
  TestRoutes routes_{no_wire_};
  std::unique_ptr<RawQueuePair> qp_;
  TimePoint now_{std::chrono::seconds(1)};
};

TEST_F(RawTest, RequestIsAWholeFrame) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  buffer.fill(1);
  post_send_of(buffer, 5);
  EXPECT_EQ(transmit(), TransmitResult::kIdle);
  EXPECT_THAT(frames_.sent, ElementsAre(content(buffer)));
  EXPECT_THAT(sent(), ElementsAre(good(5)));
  EXPECT_TRUE(no_wire_.packets.empty()) << "nothing leaves as RoCEv2";
}

TEST_F(RawTest, ChecksumsAreAskedForByFlag) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  post_send_of(buffer, 1, IBV_SEND_IP_CSUM);
  post_send_of(buffer, 2);
  transmit();
  EXPECT_THAT(frames_.with_checksums, ElementsAre(true, false));
}

TEST_F(RawTest, ManyRequestsLeaveInBatches) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  for (uint64_t i = 0; i < 10; ++i) post_send_of(buffer, i);
  transmit();
  EXPECT_EQ(frames_.sent.size(), 10u);
  EXPECT_EQ(frames_.flushes, 3);
  EXPECT_EQ(sent().size(), 10u);
}

TEST_F(RawTest, BudgetIsKept) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  for (uint64_t i = 0; i < 10; ++i) post_send_of(buffer, i);
  EXPECT_EQ(transmit(3), TransmitResult::kMore);
  EXPECT_EQ(frames_.sent.size(), 3u);
  EXPECT_EQ(transmit(), TransmitResult::kIdle);
  EXPECT_EQ(frames_.sent.size(), 10u);
}

TEST_F(RawTest, NothingIsCompleteBeforeItIsOut) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  frames_.refused = 2;
  for (uint64_t i = 0; i < 4; ++i) post_send_of(buffer, i);
  transmit();
  EXPECT_THAT(sent(), ElementsAre(good(0), good(1)));
}

TEST_F(RawTest, FullDeviceIsTriedAgainAfterAWhile) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  frames_.refused = 1;
  for (uint64_t i = 0; i < 3; ++i) post_send_of(buffer, i);
  transmit();
  EXPECT_FALSE(qp_->has_urgent()) << "trying at once would find it as full";
  const TimePoint deadline = qp_->deadline();
  EXPECT_GT(deadline, now_);
  EXPECT_LT(deadline, now_ + std::chrono::milliseconds(1));
  transmit();
  EXPECT_EQ(frames_.sent.size(), 1u);
  frames_.refused = SIZE_MAX;
  now_ = deadline;
  qp_->on_timer(now_);
  EXPECT_TRUE(qp_->has_urgent());
  EXPECT_EQ(qp_->deadline(), kNever);
  transmit();
  EXPECT_THAT(sent(), ElementsAre(good(0), good(1), good(2)));
}

// ---- pacing

TEST_F(RawTest, RateIsKept) {
  bring_up();
  Buffer& buffer = memory_.add(1000);
  qp_->limit_rate(8000, 1000);  // one frame per millisecond, and a burst of one
  const TimePoint begin = now_;
  size_t posted = 0;
  while (now_ < begin + std::chrono::milliseconds(100)) {
    for (; posted < frames_.sent.size() + 10; ++posted) post_send_of(buffer, posted);
    transmit();
    EXPECT_FALSE(qp_->has_urgent());
    ASSERT_GT(qp_->deadline(), now_);
    ASSERT_NE(qp_->deadline(), kNever);
    drain(*send_cq_);
    now_ = qp_->deadline();
    qp_->on_timer(now_);
  }
  EXPECT_GE(frames_.sent.size(), 100u);
  EXPECT_LE(frames_.sent.size(), 103u);
}

TEST_F(RawTest, TimeThatWasNotUsedGivesABurstAndNoMore) {
  bring_up();
  Buffer& buffer = memory_.add(1000);
  qp_->limit_rate(8000, 3000);
  now_ += std::chrono::seconds(10);
  for (uint64_t i = 0; i < 20; ++i) post_send_of(buffer, i);
  transmit();
  EXPECT_LE(frames_.sent.size(), 4u);
  EXPECT_GE(frames_.sent.size(), 3u);
}

TEST_F(RawTest, LimitCanBeLiftedWhileFramesWait) {
  bring_up();
  Buffer& buffer = memory_.add(1000);
  qp_->limit_rate(8, 1000);
  for (uint64_t i = 0; i < 5; ++i) post_send_of(buffer, i);
  transmit();
  EXPECT_LT(frames_.sent.size(), 5u);
  qp_->limit_rate(0, 0);
  EXPECT_TRUE(qp_->has_urgent());
  transmit();
  EXPECT_EQ(frames_.sent.size(), 5u);
}

TEST_F(RawTest, FrameThatDidNotGoCostsNoTime) {
  bring_up();
  Buffer& buffer = memory_.add(1000);
  qp_->limit_rate(8000, 1000);
  frames_.refused = 0;
  post_send_of(buffer, 0);
  transmit();
  frames_.refused = SIZE_MAX;
  now_ = qp_->deadline();
  EXPECT_LT(now_, TimePoint(std::chrono::milliseconds(1001))) << "tried again as a full device is";
  qp_->on_timer(now_);
  transmit();
  EXPECT_EQ(frames_.sent.size(), 1u);
}

struct Failure {
  const char* name;
  FrameStatus status;
  ibv_wc_status completion;
};
class RawSendFailure : public RawTest, public ::testing::WithParamInterface<Failure> {};

TEST_P(RawSendFailure, StopsTheSendQueueOnly) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  frames_.refused = 1;
  frames_.why = GetParam().status;
  for (uint64_t i = 0; i < 3; ++i) post_send_of(buffer, i);
  transmit();
  EXPECT_EQ(qp_->state(), IBV_QPS_SQE);
  EXPECT_THAT(sent(), ElementsAre(good(0), std::pair(uint64_t{1}, GetParam().completion),
                                  std::pair(uint64_t{2}, IBV_WC_WR_FLUSH_ERR)));
  post_receive_into(buffer.sge(), 7);
  deliver(ethernet::testing::udp4());
  EXPECT_THAT(received(), ElementsAre(good(7)));
  qp_->enter(IBV_QPS_RTS);
  frames_.refused = SIZE_MAX;
  post_send_of(buffer, 4);
  transmit();
  EXPECT_THAT(sent(), ElementsAre(good(4)));
}
INSTANTIATE_TEST_SUITE_P(All, RawSendFailure,
                         ::testing::Values(Failure{"Fault", FrameStatus::kFault, IBV_WC_LOC_PROT_ERR},
                                           Failure{"BadLength", FrameStatus::kBadLength, IBV_WC_LOC_LEN_ERR}),
                         [](const auto& failure) { return failure.param.name; });

TEST_F(RawTest, WhatCannotBeAFrameFailsBehindWhatCan) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  Buffer& gone = memory_.add(100);
  memory_.deregister(gone);
  post_send_of(buffer, 0);
  post_send_of(gone, 1);
  post_send_of(buffer, 2);
  transmit();
  EXPECT_EQ(frames_.sent.size(), 1u);
  EXPECT_THAT(sent(), ElementsAre(good(0), std::pair(uint64_t{1}, IBV_WC_LOC_PROT_ERR),
                                  std::pair(uint64_t{2}, IBV_WC_WR_FLUSH_ERR)));
}

TEST_F(RawTest, OnlySendsAreSent) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  post_send_of(buffer, 0, 0, IBV_WR_RDMA_WRITE);
  transmit();
  EXPECT_THAT(sent(), ElementsAre(std::pair(uint64_t{0}, IBV_WC_LOC_QP_OP_ERR)));
}

TEST_F(RawTest, FrameGoesToTheNextRequest) {
  bring_up(IBV_QPS_RTR);
  Buffer& buffer = memory_.add(2000);
  post_receive_into(buffer.sge(0, 1000), 1);
  post_receive_into(buffer.sge(1000, 1000), 2);
  const Frame first = ethernet::testing::udp4(30), second = ethernet::testing::tcp6(90);
  deliver(first);
  deliver(second, true);
  const auto completions = drain(*recv_cq_);
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].byte_len, first.size());
  EXPECT_EQ(completions[0].opcode, IBV_WC_RECV);
  EXPECT_EQ(completions[0].qp_num, 0x11u);
  EXPECT_EQ(completions[0].wc_flags, 0u);
  EXPECT_EQ(completions[1].wc_flags, static_cast<unsigned>(IBV_WC_IP_CSUM_OK));
  EXPECT_TRUE(std::equal(second.begin(), second.end(), buffer.data() + 1000));
}

TEST_F(RawTest, FrameForNobodyIsDropped) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  deliver(ethernet::testing::udp4());
  post_receive_into(buffer.sge(0, 61), 1);
  deliver(ethernet::testing::udp4(20));  // 62 bytes
  EXPECT_THAT(received(), IsEmpty());
  EXPECT_EQ(counters_[kDroppedDatagrams].load(), 2u);
  deliver(ethernet::testing::udp4(19));
  EXPECT_THAT(received(), ElementsAre(good(1)));
  EXPECT_EQ(qp_->state(), IBV_QPS_RTS) << "a stranger's frame is no error of ours";
}

TEST_F(RawTest, NothingIsReceivedBeforeRtr) {
  qp_->enter(IBV_QPS_INIT);
  Buffer& buffer = memory_.add(100);
  post_receive_into(buffer.sge(), 1);
  deliver(ethernet::testing::udp4());
  EXPECT_THAT(received(), IsEmpty());
}

TEST_F(RawTest, ReceiveIntoMemoryThatIsGoneEndsTheQp) {
  bring_up();
  Buffer& gone = memory_.add(100);
  post_receive_into(gone.sge(), 1);
  post_receive_into(gone.sge(), 2);
  memory_.deregister(gone);
  deliver(ethernet::testing::udp4());
  EXPECT_EQ(qp_->state(), IBV_QPS_ERR);
  EXPECT_THAT(received(), ElementsAre(std::pair(uint64_t{1}, IBV_WC_LOC_PROT_ERR),
                                      std::pair(uint64_t{2}, IBV_WC_WR_FLUSH_ERR)));
}

TEST_F(RawTest, OutermostVlanTagIsStrippedIfSoWanted) {
  make(true);
  bring_up();
  Buffer& buffer = memory_.add(200);
  post_receive_into(buffer.sge(), 1);
  deliver(ethernet::testing::FrameBuilder().addresses().vlan(5).vlan(6).half(0x88b5).fill(20).build());
  const Frame left = ethernet::testing::FrameBuilder().addresses().vlan(6).half(0x88b5).fill(20).build();
  const auto completions = drain(*recv_cq_);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_len, left.size());
  EXPECT_TRUE(std::equal(left.begin(), left.end(), buffer.data()));
}

TEST_F(RawTest, CompletionsTellTheStrippedTagAndTheRule) {
  make(true);
  bring_up();
  Buffer& buffer = memory_.add(200);
  post_receive_into(buffer.sge(), 1);
  const Frame frame = ethernet::testing::FrameBuilder().addresses().vlan(5).half(0x88b5).fill(60).build();
  const auto headers = ethernet::parse_headers(frame);
  qp_->on_frame({frame, *headers, 77, false});
  const queues::Completion* entry = recv_cq_->begin_batch();
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->cvlan, 5);
  EXPECT_EQ(entry->flow_tag, 77u);
  recv_cq_->end_batch();
}

TEST_F(RawTest, FrameWithoutPlaceForItsCompletionEndsTheQp) {
  recv_cq_ = *queues::CompletionQueue::create(1, &log_);
  make(false);
  bring_up();
  Buffer& buffer = memory_.add(200);
  for (uint64_t i = 0; i < 4; ++i) post_receive_into(buffer.sge(), i);
  const Frame frame = ethernet::testing::FrameBuilder().addresses().half(0x88b5).fill(60).build();
  deliver(frame);
  deliver(frame);
  EXPECT_EQ(qp_->state(), IBV_QPS_RTS);
  deliver(frame);
  EXPECT_EQ(qp_->state(), IBV_QPS_ERR);
  EXPECT_THAT(log_.events, ElementsAre(IBV_EVENT_QP_FATAL));
}

TEST_F(RawTest, RocePacketsAreNoneOfItsBusiness) {
  bring_up();
  roce::Headers headers = rc_headers(roce::Operation::kSendOnly, 0);
  const roce::Packet packet{headers, {}};
  EXPECT_EQ(qp_->on_packet({packet, path_between(ipv4(1), ipv4(2)), 16}, now_), Verdict::kWrongService);
}

TEST_F(RawTest, ErrorFlushesBothQueues) {
  bring_up();
  Buffer& buffer = memory_.add(100);
  post_receive_into(buffer.sge(), 1);
  post_send_of(buffer, 2);
  qp_->enter(IBV_QPS_ERR);
  EXPECT_THAT(received(), ElementsAre(std::pair(uint64_t{1}, IBV_WC_WR_FLUSH_ERR)));
  EXPECT_THAT(sent(), ElementsAre(std::pair(uint64_t{2}, IBV_WC_WR_FLUSH_ERR)));
  post_send_of(buffer, 3);
  EXPECT_TRUE(qp_->has_urgent());
  transmit();
  EXPECT_THAT(sent(), ElementsAre(std::pair(uint64_t{3}, IBV_WC_WR_FLUSH_ERR)));
}

// ---- work queues

class WorkQueueTest : public RawTest, public WorkQueueListener {
 protected:
  void on_work_queue_fatal() override { ++fatal_; }

  ReceiveWorkQueue& add_queue(uint32_t number) {
    queues_.push_back(
        std::make_unique<ReceiveWorkQueue>(FrameReceiptConfig{kTestPd, number, false, recv_cq_.get()},
                                           memory_.keys(), *queues::RecvQueue::create(64, 512), this));
    return *queues_.back();
  }
  void post(ReceiveWorkQueue& queue, const ibv_sge& sge, uint64_t wr_id) {
    queues::RecvWqe* wqe = queue.queue().reserve();
    ASSERT_NE(wqe, nullptr);
    wqe->wr_id = wr_id;
    wqe->num_sge = 1;
    wqe->sge_space()[0] = sge;
    queue.queue().publish();
  }
  bool deliver_to(ReceiveWorkQueue& queue, const Frame& frame) {
    return queue.on_frame({frame, *ethernet::parse_headers(frame), 0, false});
  }

  std::vector<std::unique_ptr<ReceiveWorkQueue>> queues_;
  int fatal_ = 0;
};

TEST_F(WorkQueueTest, ReceivesWhenReadyOnly) {
  ReceiveWorkQueue& queue = add_queue(0x21);
  Buffer& buffer = memory_.add(100);
  post(queue, buffer.sge(), 1);
  EXPECT_FALSE(deliver_to(queue, ethernet::testing::udp4()));
  queue.enter(IBV_WQS_RDY);
  EXPECT_TRUE(deliver_to(queue, ethernet::testing::udp4()));
  const auto completions = drain(*recv_cq_);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].qp_num, 0x21u);
  EXPECT_FALSE(deliver_to(queue, ethernet::testing::udp4())) << "no request is left";
}

TEST_F(WorkQueueTest, ErrorFlushesAndResetForgets) {
  ReceiveWorkQueue& queue = add_queue(0x21);
  Buffer& buffer = memory_.add(100);
  queue.enter(IBV_WQS_RDY);
  post(queue, buffer.sge(), 1);
  queue.enter(IBV_WQS_ERR);
  EXPECT_THAT(received(), ElementsAre(std::pair(uint64_t{1}, IBV_WC_WR_FLUSH_ERR)));
  post(queue, buffer.sge(), 2);
  queue.enter(IBV_WQS_RESET);
  EXPECT_THAT(received(), IsEmpty());
  EXPECT_EQ(fatal_, 0);
}

TEST_F(WorkQueueTest, MemoryThatIsGoneIsFatalForTheQueue) {
  ReceiveWorkQueue& queue = add_queue(0x21);
  Buffer& gone = memory_.add(100);
  queue.enter(IBV_WQS_RDY);
  post(queue, gone.sge(), 1);
  post(queue, gone.sge(), 2);
  memory_.deregister(gone);
  deliver_to(queue, ethernet::testing::udp4());
  EXPECT_EQ(queue.state(), IBV_WQS_ERR);
  EXPECT_EQ(fatal_, 1);
  EXPECT_THAT(received(), ElementsAre(std::pair(uint64_t{1}, IBV_WC_LOC_PROT_ERR),
                                      std::pair(uint64_t{2}, IBV_WC_WR_FLUSH_ERR)));
}

TEST_F(WorkQueueTest, QpSpreadsFramesByTheirHash) {
  Buffer& buffer = memory_.add(100);
  ReceiveScaling scaling;
  for (size_t i = 0; i < scaling.key.size(); ++i) scaling.key[i] = static_cast<uint8_t>(i * 29 + 3);
  scaling.fields = ethernet::kHashSourceUdp;
  for (uint32_t i = 0; i < 4; ++i) {
    ReceiveWorkQueue& queue = add_queue(0x20 + i);
    queue.enter(IBV_WQS_RDY);
    for (int n = 0; n < 60; ++n) post(queue, buffer.sge(), 0);
    scaling.table.push_back(&queue);
  }
  RawQueuePair qp(config(), scaling);
  std::array<int, 4> hits{};
  for (uint16_t port = 1; port <= 200; ++port) {
    Frame frame = ethernet::testing::udp4();
    store_be<uint16_t>(frame.data() + 34, port);
    const auto headers = *ethernet::parse_headers(frame);
    qp.on_frame({frame, headers, 0, false});
    const auto completions = drain(*recv_cq_);
    const uint32_t wanted = ethernet::receive_hash(scaling.key, scaling.fields, headers.key) % 4;
    if (completions.empty()) {
      EXPECT_GE(hits[wanted], 60) << "its queue is empty";
      continue;
    }
    ASSERT_EQ(completions[0].qp_num, 0x20 + wanted);
    ++hits[wanted];
  }
  for (const int count : hits) EXPECT_GT(count, 20);
  EXPECT_EQ(counters_[kReceivedPackets].load(), 200u);
}

}  // namespace
}  // namespace verbena::transport
