// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {

// An RC QP in RTR that expects PSN 200, with MTU 256. The test plays its peer.
class ResponderTest : public testing::Test {
 protected:
  using Operation = roce::Operation;
  using NakCode = roce::NakCode;

  void SetUp() override {
    target.fill(1);
    source.resize(1 << 16);
    Random random(2);
    for (std::byte& b : source) b = static_cast<std::byte>(random.next());
    tune(e.attributes());
    e.bring_up(IBV_QPS_RTR);
  }
  virtual void tune(QpAttributes&) {}

  // Posts a receive of the first `length` bytes of the inbox; its wr_id counts from 1.
  void post(uint32_t length = 4096) {
    ibv_sge sge = inbox.sge(0, length);
    post_list({&sge, 1});
  }
  void post_list(std::span<const ibv_sge> list) {
    ibv_recv_wr wr{};
    wr.wr_id = next_id_++;
    wr.sg_list = const_cast<ibv_sge*>(list.data());
    wr.num_sge = static_cast<int>(list.size());
    ASSERT_TRUE(post_recv(*e.qp, wr));
  }

  // Returns source[offset, offset + bytes), the payload of requests.
  ConstBytes data(size_t bytes, size_t offset = 0) const { return std::span(source).subspan(offset, bytes); }
  static roce::Headers request(Operation operation, uint32_t psn, ConstBytes payload, bool asks = true) {
    roce::Headers headers = rc_headers(operation, psn);
    headers.ack_request = asks;
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    return headers;
  }
  void send(Operation operation, uint32_t psn, ConstBytes payload = {}, bool asks = true) {
    EXPECT_EQ(e.receive(request(operation, psn, payload, asks), payload), Verdict::kAccepted);
  }
  void write(Operation operation, uint32_t psn, ConstBytes payload, uint64_t address = 0, uint32_t length = 0,
             uint32_t rkey = 0) {
    roce::Headers headers = request(operation, psn, payload);
    headers.address = address;
    headers.dma_length = length;
    headers.rkey = rkey;
    EXPECT_EQ(e.receive(headers, payload), Verdict::kAccepted);
  }
  void read(uint32_t psn, uint64_t address, uint32_t length, uint32_t rkey) {
    roce::Headers headers = request(Operation::kReadRequest, psn, {});
    headers.address = address;
    headers.dma_length = length;
    headers.rkey = rkey;
    e.receive(headers);
  }
  // READs target[offset, offset + length).
  void read(uint32_t psn, uint32_t offset, uint32_t length) {
    read(psn, target.address(offset), length, target.key());
  }
  void fetch_add(uint32_t psn, uint64_t address, uint64_t addend, uint32_t rkey) {
    roce::Headers headers = request(Operation::kFetchAdd, psn, {});
    headers.address = address;
    headers.swap_add = addend;
    headers.rkey = rkey;
    e.receive(headers);
  }
  void fetch_add(uint32_t psn, uint64_t addend) { fetch_add(psn, target.address(), addend, target.key()); }

  // Returns the packets sent, without SACKs (responder_gaps_test.cc).
  std::vector<SentPacket> answers() {
    std::vector<SentPacket> all = e.transmitted();
    std::erase_if(all, [](const SentPacket& p) { return p.headers.opcode == roce::kSackOpcode; });
    return all;
  }
  // Checks that the only packet sent is an acknowledgement with this PSN and syndrome.
  void expect_acknowledge(uint32_t psn, uint8_t syndrome, uint32_t msn) {
    const auto packets = answers();
    ASSERT_EQ(packets.size(), 1u);
    EXPECT_EQ(packets[0].operation(), Operation::kAcknowledge);
    EXPECT_EQ(packets[0].psn(), psn);
    EXPECT_EQ(packets[0].headers.syndrome, syndrome);
    EXPECT_EQ(packets[0].headers.msn, msn);
    EXPECT_EQ(packets[0].headers.destination, roce::Qpn(0x22));
  }
  void expect_ack(uint32_t psn, uint32_t msn) { expect_acknowledge(psn, roce::ack_syndrome(), msn); }
  void expect_nak(uint32_t psn, NakCode code, uint32_t msn) {
    expect_acknowledge(psn, roce::nak_syndrome(code), msn);
  }
  // Checks for an RNR NAK, which is sent once the QP has waited long enough for a receive request.
  void expect_rnr_nak(uint32_t psn, uint32_t msn) {
    e.transmitted();
    e.wait_for_timer();
    expect_acknowledge(psn, roce::rnr_syndrome(e.attributes().min_rnr_timer), msn);
  }
  void expect_silence() { EXPECT_TRUE(answers().empty()); }

  void expect_received(uint64_t wr_id, uint32_t bytes, ibv_wc_status status = IBV_WC_SUCCESS) {
    const ibv_wc wc = e.received();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, status);
    if (status == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.byte_len, bytes);
    }
    EXPECT_EQ(wc.qp_num, 0x11u);
  }
  void expect_none_received() { EXPECT_TRUE(e.recv_cq->empty()); }

  std::vector<uint32_t> psns(const std::vector<SentPacket>& packets) {
    std::vector<uint32_t> all;
    for (const SentPacket& p : packets) all.push_back(p.psn());
    return all;
  }
  std::vector<Operation> operations(const std::vector<SentPacket>& packets) {
    std::vector<Operation> all;
    for (const SentPacket& p : packets) all.push_back(p.operation());
    return all;
  }

  Endpoint<RcQueuePair> e;
  Buffer& inbox = e.memory.add(1 << 16, IBV_ACCESS_LOCAL_WRITE);
  Buffer& target = e.memory.add(1 << 16);
  std::vector<std::byte> source;

 private:
  uint64_t next_id_ = 1;
};

}  // namespace verbena::transport
