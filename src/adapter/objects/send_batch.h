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

// struct ibv_qp_ex as verbs.h of rdma-core 45 and later has it. Older headers lack its last operation,
// wr_flush: then it is appended here, in the same place. Programs call it without a check if they asked for
// it when they created the queue pair.
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

// A batch of requests between ibv_wr_start() and ibv_wr_complete(), or ibv_wr_abort(): they are written
// straight into the ring, behind what is posted, and posted together. Belongs to the thread that started it,
// which has the send queue's lock meanwhile.
struct SendBatch {
  static constexpr int kNotOpen = -1;

  queues::SendQueue* ring = nullptr;
  SpinLock* lock = nullptr;        // none in a thread domain
  queues::SendWqe* wqe = nullptr;  // the request being made, to which setters apply
  uint32_t first = 0;              // index of the first request
  uint32_t filled = 0;
  uint32_t room = 0;         // in the ring, when last looked
  int error = kNotOpen;      // the first; from then on every call does nothing. So also outside of a batch.
  Data data = Data::kNone;   // which the request being made takes
  bool unaddressed = false;  // it lacks what says where it goes
};

// The operations (enum ibv_qp_create_send_ops_flags) that a service carries out.
constexpr uint64_t executed_operations(uint8_t service) {
  uint64_t operations = 0;
  for (const SendRule& rule : kSendRules) {
    if ((rule.executed & service) != 0) operations |= rule.operation;
  }
  return operations;
}

// Fills in the functions of struct ibv_qp_ex: those of the operations asked for at creation, and refusals for
// the others, as a program that calls one without having asked must not jump to nowhere.
// REQUIRES: the QP's type and whether it is of one thread are set; operations are among executed_operations()
void fill_send_operations(Qp& qp, uint64_t operations);

}  // namespace verbena::adapter
