// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/qp_state.h"

namespace verbena::adapter {

using transport::kRawService;
using transport::kRcService;
using transport::kUcService;
using transport::kUdService;
using transport::service_bit;

// The operands of a request besides its data.
enum class Operand : uint8_t {
  kNone,
  kRemote,      // a remote address and key
  kAtomic,      // a remote address, a key and the atomic operands; the responder checks the alignment
  kInvalidate,  // the local or remote key to invalidate
  kWindow,      // a memory window, and the region and range to bind it to
  kFlush,       // a remote range, its key and how to flush it
};

// The use of a request's gather list, and its allowed length in bytes.
enum class Data : uint8_t {
  kNone,      // the list must be empty
  kSent,      // the adapter reads the data, which may be inline
  kReceived,  // the adapter writes the data
  kWord,      // exactly eight bytes, which the adapter reads; may be inline
  kOriginal,  // at least eight bytes, to which the adapter writes the original value of an atomic operation
};

// The rules for one opcode of a send request. The table kSendRules alone decides which transport service may
// post which opcode. If a service is in `services` but in neither `executed` nor `fails`, posting returns
// EOPNOTSUPP; a transport that learns the operation gets its bit in `executed`. If a service is in none of
// the three, posting returns EINVAL. Both are immediate errors, "invalid operation type" (IBTA volume 1,
// 11.4.1.1).
//
// If a service is in `fails`, posting succeeds and the request completes with IBV_WC_LOC_QP_OP_ERR. The
// kernel's rxe does the same (rxe_requester()), because it checks only lengths when posting. mlx5 does so,
// too, because only the hardware detects the error.
struct SendRule {
  uint8_t services = 0;  // that the verbs allow (ibv_post_send(3), ibv_wr_post(3))
  uint8_t executed = 0;  // subset of `services` that this adapter implements
  uint8_t fails = 0;     // whose requests complete with an error
  Operand operand = Operand::kNone;
  Data data = Data::kSent;
  uint32_t operation = 0;  // flag in enum ibv_qp_create_send_ops_flags
};

inline constexpr size_t kSendOpcodes = IBV_WR_ATOMIC_WRITE + 1;

// The rules of all opcodes, indexed by enum ibv_wr_opcode. This adapter executes neither TSO, which needs a
// network adapter that segments, nor a driver's own opcode, which needs that driver.
inline constexpr std::array<SendRule, kSendOpcodes> kSendRules = [] {
  constexpr uint8_t kReliable = kRcService | transport::kXrcSendService;  // an XRC target posts nothing
  constexpr uint8_t kConnected = kReliable | kUcService;
  constexpr uint8_t kImmediate = kConnected | kUdService;
  constexpr uint8_t kAll = kImmediate | kRawService;
  constexpr uint8_t kUnreliable = kUcService | kUdService;
  using O = Operand;
  using D = Data;
  std::array<SendRule, kSendOpcodes> rules{};
  // services, executed, fails, operand, data, operation
  rules[IBV_WR_RDMA_WRITE] = {kConnected, kConnected, kUdService,
                              O::kRemote, D::kSent,   IBV_QP_EX_WITH_RDMA_WRITE};
  rules[IBV_WR_RDMA_WRITE_WITH_IMM] = {kConnected, kConnected, kUdService,
                                       O::kRemote, D::kSent,   IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM};
  rules[IBV_WR_SEND] = {kAll, kAll, 0, O::kNone, D::kSent, IBV_QP_EX_WITH_SEND};
  rules[IBV_WR_SEND_WITH_IMM] = {kImmediate, kImmediate, 0, O::kNone, D::kSent, IBV_QP_EX_WITH_SEND_WITH_IMM};
  rules[IBV_WR_RDMA_READ] = {kReliable,  kReliable,    kUnreliable,
                             O::kRemote, D::kReceived, IBV_QP_EX_WITH_RDMA_READ};
  rules[IBV_WR_ATOMIC_CMP_AND_SWP] = {kReliable,  kReliable,    kUnreliable,
                                      O::kAtomic, D::kOriginal, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP};
  rules[IBV_WR_ATOMIC_FETCH_AND_ADD] = {kReliable,  kReliable,    kUnreliable,
                                        O::kAtomic, D::kOriginal, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
  rules[IBV_WR_LOCAL_INV] = {kConnected, kConnected, 0, O::kInvalidate, D::kNone, IBV_QP_EX_WITH_LOCAL_INV};
  rules[IBV_WR_BIND_MW] = {kConnected, kConnected, 0, O::kWindow, D::kNone, IBV_QP_EX_WITH_BIND_MW};
  rules[IBV_WR_SEND_WITH_INV] = {kConnected,     kReliable, kUdService,
                                 O::kInvalidate, D::kSent,  IBV_QP_EX_WITH_SEND_WITH_INV};
  rules[IBV_WR_TSO] = {kUdService | kRawService, 0, 0, O::kNone, D::kSent, IBV_QP_EX_WITH_TSO};
  rules[IBV_WR_DRIVER1] = {kAll, 0, 0, O::kNone, D::kSent, 0};
  rules[IBV_WR_ATOMIC_WRITE] = {kReliable,  kReliable, kUnreliable,
                                O::kRemote, D::kWord,  IBV_QP_EX_WITH_ATOMIC_WRITE};
  rules[queues::kFlushOpcode] = {kReliable, kReliable, 0, O::kFlush, D::kNone, queues::kFlushOperation};
  return rules;
}();

// Returns the opcodes that this adapter implements for a service, as a bit mask (bit n for opcode n).
constexpr uint32_t executed_opcodes(uint8_t service) {
  uint32_t opcodes = 0;
  for (uint32_t opcode = 0; opcode < kSendOpcodes; ++opcode) {
    if ((kSendRules[opcode].executed & service) != 0) opcodes |= 1u << opcode;
  }
  return opcodes;
}

// Returns whether a request with this opcode is accepted by a service and then completes with an error.
constexpr bool completes_with_error(uint32_t opcode, uint8_t service) {
  return opcode < kSendOpcodes && (kSendRules[opcode].fails & service) != 0;
}

// Returns the errno value for posting an opcode that a service refuses: EOPNOTSUPP if the verbs allow the
// opcode, else EINVAL. REQUIRES: the opcode is not in executed_opcodes()
constexpr int refusal_of(uint32_t opcode, uint8_t service) {
  return opcode < kSendOpcodes && (kSendRules[opcode].services & service) != 0 ? EOPNOTSUPP : EINVAL;
}

}  // namespace verbena::adapter
