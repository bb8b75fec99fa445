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

// The next asynchronous event, not acknowledged yet. A failure of the test, and a type that we never send,
// after ten seconds.
inline ibv_async_event next_event(ibv_context* context) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CLIENT_REREGISTER;
  EXPECT_TRUE(readable(context->async_fd, kPatienceMs)) << "no event within ten seconds";
  if (readable(context->async_fd)) {
    EXPECT_EQ(ibv_get_async_event(context, &event), 0);
  }
  return event;
}

// The next completion; a status of IBV_WC_GENERAL_ERR after ten seconds.
ibv_wc next_completion(ibv_cq* cq);

// A context with a PD, a CQ and a registered buffer, for QPs and shared receive queues of any kind that talk
// to each other on one host.
class Bench {
 public:
  static constexpr uint32_t kFirstPsn = 0xfffff0;  // of its QPs and their peers'

  Bench();

  // A QP of RC, UC or XRC_SEND; with `srq` one that takes its receives there. Null and errno on failure.
  Qp make_qp(ibv_qp_type type, ibv_srq* srq = nullptr);
  Qp make_target(ibv_xrcd* xrcd);
  Srq make_srq(uint32_t requests = 64, uint32_t limit = 0);
  Srq make_xrc_srq(ibv_xrcd* xrcd, ibv_cq* completions, uint32_t requests = 64);
  Xrcd make_domain(int fd = -1, int flags = O_CREAT);

  // Takes a QP to RTS, its peer being another on this host.
  void connect(ibv_qp* qp, uint32_t peer_qpn);
  void connect_both(ibv_qp* a, ibv_qp* b) {
    connect(a, b->qp_num);
    connect(b, a->qp_num);
  }

  ibv_sge piece(size_t offset, size_t length) const {
    return {reinterpret_cast<uint64_t>(mr->addr) + offset, static_cast<uint32_t>(length), mr->lkey};
  }
  // Each posts one request; the errno value.
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

// A SEND, to this shared receive queue if the QP is one for XRC.
ibv_send_wr send_to(uint64_t wr_id, uint32_t srq_number = 0);

}  // namespace verbena::adapter::testing
