// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

#include "adapter/objects/send_rules.h"
#include "adapter/queues/work_queue.h"
#include "base/spin_lock.h"

namespace verbena::adapter {

struct Ah;
struct Qp;

// Checks a request of ibv_post_send(3) against send_rules.h and the QP's capacities, and writes the request
// to the ring entry `wqe`. Returns 0 or an errno value; after an error the entry's content is undefined.
// REQUIRES: the caller is the send queue's only producer
int fill(queues::SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp);

// Writes the destination of a datagram to the ring entry. If the address handle and the QP are in different
// protection domains, the request later completes with IBV_WC_LOC_QP_OP_ERR, as with the kernel's rxe
// (rxe_get_av()). REQUIRES: wqe.flags is set
void take_address(queues::SendWqe& wqe, const Ah& ah, const Qp& qp);

// Writes the operands of a BIND_MW request to the ring entry. `new_key` is the R_Key that the binding gives
// the window.
void fill_binding(queues::SendWqe& wqe, const ibv_mw& window, uint32_t new_key, const ibv_mw_bind_info& info);

// struct ibv_qp_ex as in verbs.h of rdma-core 45 and later. Older headers lack its last member, wr_flush, so
// WithFlush appends wr_flush at the same offset. A program that requested FLUSH when it created the QP calls
// wr_flush without checking that the member exists.
template <class AbiQp>
struct WithFlush : AbiQp {
  void (*wr_flush)(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_address, size_t length, uint8_t placement,
                   uint8_t selectivity) = nullptr;
  static constexpr size_t kFlushOffset = sizeof(AbiQp);
};

template <class AbiQp>
requires requires(AbiQp qp) {
  qp.wr_flush;
}
struct WithFlush<AbiQp> : AbiQp {
  static constexpr size_t kFlushOffset = offsetof(AbiQp, wr_flush);
};

using ExtendedQp = WithFlush<ibv_qp_ex>;
static_assert(ExtendedQp::kFlushOffset == offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*));

// The state of a batch of requests between ibv_wr_start() and ibv_wr_complete() or ibv_wr_abort(). The
// requests are written into the ring behind the posted requests, and ibv_wr_complete() publishes them
// together. The thread that called ibv_wr_start() holds the send queue's lock until the batch ends.
struct SendBatch {
  static constexpr int kNotOpen = -1;

  queues::SendQueue* ring = nullptr;
  SpinLock* lock = nullptr;        // null if the QP is in a thread domain
  queues::SendWqe* wqe = nullptr;  // the latest request, to which setters apply
  uint32_t first = 0;              // ring index of the batch's first request
  uint32_t filled = 0;
  uint32_t room = 0;  // free entries in the ring when last read
  // The errno value of the first error, or kNotOpen. While not 0, requests and setters do nothing.
  int error = kNotOpen;
  Data data = Data::kNone;   // the kind of data that the latest request takes
  bool unaddressed = false;  // the latest request lacks its UD address or SRQ number
};

// Returns the operations (enum ibv_qp_create_send_ops_flags) that the adapter carries out for one ServiceBit.
constexpr uint64_t executed_operations(uint8_t service) {
  uint64_t operations = 0;
  for (const SendRule& rule : kSendRules) {
    if ((rule.executed & service) != 0) operations |= rule.operation;
  }
  return operations;
}

// Fills in the function pointers of struct ibv_qp_ex. An operation that is not in `operations` gets a
// function that fails the batch, because a program might call the operation without having requested it.
// REQUIRES: qp.init.qp_type and qp.one_thread are set, and `operations` is a subset of executed_operations()
void fill_send_operations(Qp& qp, uint64_t operations);

}  // namespace verbena::adapter
