// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "adapter/transport/ud.h"

namespace verbena::transport {

// A UD QP with number 0x11 and MTU 1024. It sends to QP 0x77 of address 9, and receives from QP 0x99 there.
class UdTest : public testing::Test {
 protected:
  using Op = roce::Operation;
  static constexpr uint32_t kQkey = 0x11111111;

  void SetUp() override {
    local.fill(3);
    e.attributes().path_mtu = 1024;
    e.attributes().qkey = kQkey;
    e.attributes().send_psn = roce::Psn(0xffffff);
    e.bring_up();
  }

  ibv_send_wr request(uint32_t length, unsigned flags = 0) {
    sge_ = local.sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = next_id_++;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge_;
    wr.num_sge = 1;
    wr.send_flags = flags;
    wr.wr.ud.remote_qpn = 0x77;
    wr.wr.ud.remote_qkey = kQkey;
    return wr;
  }
  void post(const ibv_send_wr& wr) { ASSERT_TRUE(post_send(*e.qp, wr, &path)); }
  void post(uint32_t length, unsigned flags = 0) { post(request(length, flags)); }
  void post_receive(uint32_t length) {
    ibv_sge sge = inbox.sge(0, length);
    ibv_recv_wr wr{};
    wr.wr_id = next_id_++;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_TRUE(post_recv(*e.qp, wr));
  }
  roce::Headers datagram(ConstBytes payload, uint32_t qkey = kQkey) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kUd, Op::kSendOnly);
    headers.destination = roce::Qpn(0x11);
    headers.qkey = qkey;
    headers.source = roce::Qpn(0x99);
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    return headers;
  }
  Verdict receive(const roce::Headers& headers, ConstBytes payload, const roce::Path& from) {
    const roce::Packet packet{headers, payload};
    const auto udp_bytes =
        static_cast<uint32_t>(roce::header_bytes(headers.opcode) + payload.size() + headers.pad + 4);
    return e.qp->on_packet({packet, from, udp_bytes}, e.now);
  }
  Verdict receive(ConstBytes payload, uint32_t qkey = kQkey) {
    return receive(datagram(payload, qkey), payload, path_between(ipv4(9), ipv4(1)));
  }

  Endpoint<UdQueuePair> e;
  Buffer& local = e.memory.add(1 << 16);
  Buffer& inbox = e.memory.add(1 << 16);
  roce::Path path = path_between(ipv4(1), ipv4(9));

 private:
  ibv_sge sge_{};
  uint64_t next_id_ = 1;
};

}  // namespace verbena::transport
