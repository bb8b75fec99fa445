// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include <infiniband/verbs.h>

// Texts that programs print of an event, a completion or a queue pair. Scripts match them, so they are an
// interface.
namespace verbena::queues {

// Texts of events, indexed by enum ibv_event_type. The last event is newer than the headers that we build
// with.
inline constexpr const char* kEventTypes[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
    "Device link speed change",
};

// Texts of completion statuses, indexed by enum ibv_wc_status.
inline constexpr const char* kCompletionStatuses[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

// Names of send opcodes, indexed by enum ibv_wr_opcode; null where there is no opcode.
inline constexpr const char* kSendOpcodes[] = {
    "IBV_WR_RDMA_WRITE",
    "IBV_WR_RDMA_WRITE_WITH_IMM",
    "IBV_WR_SEND",
    "IBV_WR_SEND_WITH_IMM",
    "IBV_WR_RDMA_READ",
    "IBV_WR_ATOMIC_CMP_AND_SWP",
    "IBV_WR_ATOMIC_FETCH_AND_ADD",
    "IBV_WR_LOCAL_INV",
    "IBV_WR_BIND_MW",
    "IBV_WR_SEND_WITH_INV",
    "IBV_WR_TSO",
    "IBV_WR_DRIVER1",
    nullptr,
    nullptr,
    "IBV_WR_FLUSH",
    "IBV_WR_ATOMIC_WRITE",
};
// Returns nullptr if `opcode` is no opcode.
constexpr const char* send_opcode_name(uint32_t opcode) {
  return opcode < std::size(kSendOpcodes) ? kSendOpcodes[opcode] : nullptr;
}

constexpr const char* name_of(ibv_qp_type type) {
  constexpr const char* kTypes[] = {nullptr, nullptr, "RC",         "UC",       "UD",      nullptr,
                                    nullptr, nullptr, "RAW_PACKET", "XRC_SEND", "XRC_RECV"};
  static_assert(IBV_QPT_RC == 2 && IBV_QPT_RAW_PACKET == 8 && IBV_QPT_XRC_RECV + 1 == std::size(kTypes));
  const char* const name = type < std::size(kTypes) ? kTypes[type] : nullptr;
  return name != nullptr ? name : "this type of queue pair";
}

// Names of QP states as in iproute2, indexed by enum ibv_qp_state.
inline constexpr std::array<const char*, 7> kQpStates = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

}  // namespace verbena::queues
