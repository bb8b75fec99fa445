// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

#include "adapter/objects/send_rules.h"
#include "adapter/queues/work_queue.h"
#include "base/spin_lock.h"

namespace verbena::adapter {

struct Qp;

// struct ibv_qp_ex as in verbs.h of rdma-core 45 and later. Older headers lack its last operation, wr_flush;
// then it is appended here, at the same offset. Programs that asked for it at creation call it without a
// check.
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
// requests are written into the ring behind those already posted, and are published together. The batch
// belongs to the thread that started it, which holds the send queue's lock meanwhile.
struct SendBatch {
  static constexpr int kNotOpen = -1;

  queues::SendQueue* ring = nullptr;
  SpinLock* lock = nullptr;        // null for a QP of a thread domain
  queues::SendWqe* wqe = nullptr;  // the latest request, to which setters apply
  uint32_t first = 0;              // index of the first request
  uint32_t filled = 0;
  uint32_t room = 0;         // free entries in the ring when last read
  int error = kNotOpen;      // the first error, or kNotOpen: while not 0, all calls do nothing
  Data data = Data::kNone;   // the kind of data that the latest request takes
  bool unaddressed = false;  // the latest request still lacks its UD or XRC address
};

// The operations (enum ibv_qp_create_send_ops_flags) that a service carries out.
constexpr uint64_t executed_operations(uint8_t service) {
  uint64_t operations = 0;
  for (const SendRule& rule : kSendRules) {
    if ((rule.executed & service) != 0) operations |= rule.operation;
  }
  return operations;
}

// Fills in the functions of struct ibv_qp_ex. Operations that were not requested at creation get functions
// that fail the batch, because a program might call them anyway. REQUIRES: qp.init.qp_type and qp.one_thread
// are set; `operations` is a subset of executed_operations()
void fill_send_operations(Qp& qp, uint64_t operations);

}  // namespace verbena::adapter
