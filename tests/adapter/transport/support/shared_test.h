// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {

// Counts the limit events of a shared receive queue.
struct LimitLog : queues::LimitListener {
  void on_limit_reached() override { ++events; }
  int events = 0;
};

// A fixture with memory and payload, for tests of several QPs that use shared receive queues.
class SharedTest : public testing::Test {
 protected:
  using Op = roce::Operation;
  using NakCode = roce::NakCode;

  void SetUp() override {
    source.resize(1 << 16);
    Random random(2);
    for (std::byte& b : source) b = static_cast<std::byte>(random.next());
  }

  std::unique_ptr<queues::SharedReceiveQueue> make_queue(uint32_t requests = 16, memory::PdId pd = kTestPd) {
    return *queues::SharedReceiveQueue::create(
        {.requests = requests, .sges = queues::kMaxSge, .pd = pd, .listener = &limit});
  }
  // Posts a receive into the inbox at offset wr_id * 4096.
  void post(queues::SharedReceiveQueue& queue, uint64_t wr_id, uint32_t length = 4096) {
    post(queue, wr_id, inbox.sge(wr_id * 4096, length));
  }
  static void post(queues::SharedReceiveQueue& queue, uint64_t wr_id, ibv_sge sge) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_TRUE(post_recv(queue, wr));
  }

  ConstBytes data(size_t bytes, size_t offset = 0) const { return std::span(source).subspan(offset, bytes); }
  bool inbox_holds(uint64_t wr_id, ConstBytes wanted) {
    return std::ranges::equal(inbox.bytes(wr_id * 4096, wanted.size()), wanted);
  }

  static roce::Headers request(roce::Service service, Op operation, uint32_t psn, ConstBytes payload) {
    roce::Headers headers = headers_of(service, operation, psn);
    headers.ack_request = true;
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    return headers;
  }
  // Returns the packets sent, without SACKs.
  template <class Qp>
  static std::vector<SentPacket> answers(Endpoint<Qp>& e) {
    std::vector<SentPacket> all = e.transmitted();
    std::erase_if(all, [](const SentPacket& p) { return p.headers.opcode == roce::kSackOpcode; });
    return all;
  }
  template <class Qp>
  static void expect_answer(Endpoint<Qp>& e, uint8_t syndrome, uint32_t psn) {
    const auto packets = answers(e);
    ASSERT_EQ(packets.size(), 1u);
    EXPECT_EQ(packets[0].operation(), Op::kAcknowledge);
    EXPECT_EQ(packets[0].headers.syndrome, syndrome);
    EXPECT_EQ(packets[0].psn(), psn);
  }
  // Checks for an RNR NAK, which is sent once the QP has waited long enough for a receive request.
  template <class Qp>
  static void expect_rnr_nak(Endpoint<Qp>& e, uint32_t psn) {
    e.transmitted();
    while (e.counter(kRnrNaksSent) == 0) {
      ASSERT_NE(e.qp->deadline(), kNever);
      e.wait_for_timer();
      e.transmit();
    }
    expect_answer(e, roce::rnr_syndrome(e.attributes().min_rnr_timer), psn);
  }

  TestMemory memory;
  Buffer& inbox = memory.add(32 * 4096, IBV_ACCESS_LOCAL_WRITE);
  Buffer& target = memory.add(1 << 16);
  std::vector<std::byte> source;
  LimitLog limit;
};

}  // namespace verbena::transport
