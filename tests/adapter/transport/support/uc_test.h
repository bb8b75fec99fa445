// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/uc.h"

namespace verbena::transport {

// A UC QP that sends from PSN 100 and expects PSN 200, with MTU 256. The test plays its peer.
class UcTest : public testing::Test {
 protected:
  using Op = roce::Operation;

  explicit UcTest(const EndpointOptions& options = {}) : e(options) {}

  void SetUp() override {
    outbox.fill(1);
    source.resize(1 << 16);
    Random random(2);
    for (std::byte& b : source) b = static_cast<std::byte>(random.next());
    e.bring_up();
  }

  // Posts a receive of `length` bytes of the inbox, from `offset` on; its wr_id counts from 1.
  void post_receive(uint32_t length = 4096, uint32_t offset = 0) {
    ibv_sge sge = inbox.sge(offset, length);
    post_receive_list({&sge, 1});
  }
  void post_receive_list(std::span<const ibv_sge> list) {
    ibv_recv_wr wr{};
    wr.wr_id = next_receive_++;
    wr.sg_list = const_cast<ibv_sge*>(list.data());
    wr.num_sge = static_cast<int>(list.size());
    ASSERT_TRUE(post_recv(*e.qp, wr));
  }
  // Posts a request of the first `length` bytes of the outbox; its wr_id counts from 1.
  void post(ibv_wr_opcode opcode, uint32_t length, unsigned flags = 0) {
    post_with_key(opcode, length, outbox.key(), flags);
  }
  void post_with_key(ibv_wr_opcode opcode, uint32_t length, uint32_t lkey, unsigned flags = 0) {
    ibv_sge sge = outbox.sge(0, length);
    sge.lkey = lkey;
    ibv_send_wr wr{};
    wr.wr_id = next_send_++;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = flags;
    wr.imm_data = htobe32(0x01020304);
    wr.wr.rdma.remote_addr = 0x10000;
    wr.wr.rdma.rkey = 0xabcd;
    ASSERT_TRUE(post_send(*e.qp, wr));
  }

  // Returns source[offset, offset + bytes), the payload of arriving packets.
  ConstBytes data(size_t bytes, size_t offset = 0) const { return std::span(source).subspan(offset, bytes); }
  static roce::Headers packet(Op operation, uint32_t psn, ConstBytes payload) {
    roce::Headers headers = headers_of(roce::Service::kUc, operation, psn);
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    headers.immediate = 0x0a0b0c0d;
    return headers;
  }
  void arrive(Op operation, uint32_t psn, ConstBytes payload = {}) {
    EXPECT_EQ(e.receive(packet(operation, psn, payload), payload), Verdict::kAccepted);
  }
  void arrive_write(Op operation, uint32_t psn, ConstBytes payload, uint32_t offset, uint32_t length) {
    roce::Headers headers = packet(operation, psn, payload);
    headers.address = target.address(offset);
    headers.dma_length = length;
    headers.rkey = target.key();
    EXPECT_EQ(e.receive(headers, payload), Verdict::kAccepted);
  }

  void expect_received(uint64_t wr_id, uint32_t bytes) {
    const ibv_wc wc = e.received();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(wc.qp_num, 0x11u);
    EXPECT_EQ(wc.src_qp, 0x22u);
  }
  void expect_none_received() { EXPECT_TRUE(e.recv_cq->empty()); }
  void expect_sent(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
    const ibv_wc wc = e.sent();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, status);
  }
  void expect_none_sent() { EXPECT_TRUE(e.send_cq->empty()); }
  bool inbox_holds(ConstBytes wanted, size_t offset = 0) {
    return std::ranges::equal(inbox.bytes(offset, wanted.size()), wanted);
  }

  static std::vector<Op> operations(const std::vector<SentPacket>& packets) {
    std::vector<Op> all;
    for (const SentPacket& p : packets) all.push_back(p.operation());
    return all;
  }
  static std::vector<uint32_t> psns(const std::vector<SentPacket>& packets) {
    std::vector<uint32_t> all;
    for (const SentPacket& p : packets) all.push_back(p.psn());
    return all;
  }

  Endpoint<UcQueuePair> e;
  Buffer& inbox = e.memory.add(1 << 16, IBV_ACCESS_LOCAL_WRITE);
  Buffer& target = e.memory.add(1 << 16);
  Buffer& outbox = e.memory.add(1 << 20, 0);
  std::vector<std::byte> source;

 private:
  uint64_t next_send_ = 1;
  uint64_t next_receive_ = 1;
};

}  // namespace verbena::transport
