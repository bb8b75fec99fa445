// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {

// An RC QP in RTS with first PSN 100 and MTU 256. The test plays its peer.
class RequesterTest : public testing::Test {
 protected:
  using Operation = roce::Operation;
  using NakCode = roce::NakCode;
  static constexpr uint64_t kRemoteAddress = 0x10000;
  static constexpr uint32_t kRemoteKey = 0xabcd;

  void SetUp() override {
    local.fill(1);
    tune(e.attributes());
    e.bring_up();
  }
  virtual void tune(QpAttributes&) {}

  ibv_send_wr request(ibv_wr_opcode opcode, uint32_t length, unsigned flags = 0) {
    sge_ = local.sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = next_id_++;
    wr.opcode = opcode;
    wr.sg_list = &sge_;
    wr.num_sge = 1;
    wr.send_flags = flags;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = kRemoteAddress;
      wr.wr.atomic.rkey = kRemoteKey;
    } else {
      wr.wr.rdma.remote_addr = kRemoteAddress;
      wr.wr.rdma.rkey = kRemoteKey;
    }
    return wr;
  }
  // Posts a request; its wr_id counts from 1.
  void post(ibv_wr_opcode opcode, uint32_t length, unsigned flags = 0) {
    ASSERT_TRUE(post_send(*e.qp, request(opcode, length, flags)));
  }
  void post_with_key(ibv_wr_opcode opcode, uint32_t length, uint32_t lkey, unsigned flags = 0) {
    ibv_send_wr wr = request(opcode, length, flags);
    wr.sg_list->lkey = lkey;
    ASSERT_TRUE(post_send(*e.qp, wr));
  }

  void acknowledge(uint32_t psn, uint8_t syndrome = roce::ack_syndrome()) {
    roce::Headers headers = rc_headers(Operation::kAcknowledge, psn);
    headers.syndrome = syndrome;
    e.receive(headers);
  }
  void nak(uint32_t psn, NakCode code) { acknowledge(psn, roce::nak_syndrome(code)); }
  void rnr(uint32_t psn, uint8_t timer) { acknowledge(psn, roce::rnr_syndrome(timer)); }
  // Delivers a CNP, as for packets that a congested switch marked.
  void notice() {
    roce::Headers headers;
    headers.opcode = roce::kCnpOpcode;
    headers.destination = roce::Qpn(0x11);
    headers.becn = true;
    EXPECT_EQ(e.receive(headers, std::array<std::byte, 16>{}), Verdict::kAccepted);
  }
  void respond(Operation operation, uint32_t psn, ConstBytes data) {
    roce::Headers headers = rc_headers(operation, psn);
    headers.syndrome = roce::ack_syndrome();
    headers.pad = roce::padding_of(static_cast<uint32_t>(data.size()));
    e.receive(headers, data);
  }
  void respond_atomic(uint32_t psn, uint64_t original) {
    roce::Headers headers = rc_headers(Operation::kAtomicAcknowledge, psn);
    headers.syndrome = roce::ack_syndrome();
    headers.atomic_original = original;
    e.receive(headers);
  }
  // Answers a whole READ request with `data`.
  void respond_read(const SentPacket& read, ConstBytes data) {
    const uint32_t mtu = e.attributes().path_mtu;
    uint32_t psn = read.psn();
    for (size_t at = 0; at < data.size() || at == 0; at += mtu, ++psn) {
      const size_t bytes = std::min<size_t>(mtu, data.size() - at);
      const bool first = at == 0;
      const bool last = at + mtu >= data.size();
      respond(first ? (last ? Operation::kReadResponseOnly : Operation::kReadResponseFirst)
                    : (last ? Operation::kReadResponseLast : Operation::kReadResponseMiddle),
              psn, data.subspan(at, bytes));
    }
  }

  std::vector<Operation> operations(const std::vector<SentPacket>& packets) {
    std::vector<Operation> all;
    for (const SentPacket& p : packets) all.push_back(p.operation());
    return all;
  }
  std::vector<uint32_t> psns(const std::vector<SentPacket>& packets) {
    std::vector<uint32_t> all;
    for (const SentPacket& p : packets) all.push_back(p.psn());
    return all;
  }

  void expect_sent(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
    const ibv_wc wc = e.sent();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, status);
    EXPECT_EQ(wc.qp_num, 0x11u);
  }
  void expect_none_sent() { EXPECT_TRUE(e.send_cq->empty()); }

  Endpoint<RcQueuePair> e;
  Buffer& local = e.memory.add(1 << 20);

 private:
  ibv_sge sge_{};
  uint64_t next_id_ = 1;
};

}  // namespace verbena::transport
