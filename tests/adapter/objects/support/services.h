// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/events.h"

namespace verbena::adapter::testing {

using Srq = std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>>;
struct CloseXrcd {
  void operator()(ibv_xrcd* domain) const { EXPECT_EQ(ibv_close_xrcd(domain), 0); }
};
using Xrcd = std::unique_ptr<ibv_xrcd, CloseXrcd>;

// Returns the next asynchronous event, without acknowledging it. After ten seconds fails the test and returns
// a type that Verbena never sends.
inline ibv_async_event next_event(ibv_context* context) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CLIENT_REREGISTER;
  EXPECT_TRUE(readable(context->async_fd, kPatienceMs)) << "no event within ten seconds";
  if (readable(context->async_fd)) {
    EXPECT_EQ(ibv_get_async_event(context, &event), 0);
  }
  return event;
}

// Returns the next completion; after ten seconds one with status IBV_WC_GENERAL_ERR.
ibv_wc next_completion(ibv_cq* cq);

// A context with a PD, a CQ and a registered buffer. Creates QPs and shared receive queues of any kind that
// communicate on one host.
class Bench {
 public:
  static constexpr uint32_t kFirstPsn = 0xfffff0;  // of its QPs and their peers

  Bench();

  // Creates a QP of type RC, UC or XRC_SEND, with receives from `srq` if set. Null, with errno, on failure.
  Qp make_qp(ibv_qp_type type, ibv_srq* srq = nullptr);
  Qp make_target(ibv_xrcd* xrcd);
  Srq make_srq(uint32_t requests = 64, uint32_t limit = 0);
  Srq make_xrc_srq(ibv_xrcd* xrcd, ibv_cq* completions, uint32_t requests = 64);
  Xrcd make_domain(int fd = -1, int flags = O_CREAT);

  // Connects a QP to another on this host and takes it to RTS.
  void connect(ibv_qp* qp, uint32_t peer_qpn);
  void connect_both(ibv_qp* a, ibv_qp* b) {
    connect(a, b->qp_num);
    connect(b, a->qp_num);
  }

  ibv_sge piece(size_t offset, size_t length) const {
    return {reinterpret_cast<uint64_t>(mr->addr) + offset, static_cast<uint32_t>(length), mr->lkey};
  }
  // Each posts one request and returns the errno value.
  int post_receive(ibv_srq* srq, uint64_t wr_id, ibv_sge piece);
  int post(ibv_qp* qp, ibv_send_wr request, ibv_sge piece);

  Context context;
  Pd pd;
  Cq cq;
  std::vector<std::byte> buffer;
  Mr mr;

 private:
  ibv_gid gid_{};
  int gid_index_;
};

// Returns a SEND request, to this shared receive queue if the QP is for XRC.
ibv_send_wr send_to(uint64_t wr_id, uint32_t srq_number = 0);

}  // namespace verbena::adapter::testing
