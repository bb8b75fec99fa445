// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"

namespace verbena::protocol {

inline constexpr size_t kConnectionStates = 15;    // cm::State
inline constexpr size_t kConnectionMads = 11;      // cm::MessageType
inline constexpr size_t kDatagramDropReasons = 9;  // cm::DropReason

// The agent's counters of connection management, for `verbena status`.
struct CmStatus {
  // Numbers of programs' identifiers: all, listening, and waiting for neighbour resolution.
  uint32_t identifiers;
  uint32_t listening;
  uint32_t resolving;
  // Number of connections without a program: in TIMEWAIT, or refused a short while ago.
  uint32_t waiting;
  uint32_t connections[kConnectionStates];  // of programs, by cm::State
  uint32_t reserved;
  uint64_t sent[kConnectionMads];  // by cm::MessageType
  uint64_t received[kConnectionMads];
  uint64_t retransmitted;
  uint64_t duplicates;
  uint64_t timed_out;
  uint64_t stale_connections;
  uint64_t dropped[kDatagramDropReasons];  // by cm::DropReason
  uint64_t bad_qkey;                       // datagrams to QP1 with a wrong Q_Key; next, of an unknown class
  uint64_t unknown_class;
};

struct CmStatusReply {
  MessageHeader header;
  CmStatus status;
};
static_assert(sizeof(CmStatus) == 376);
static_assert(sizeof(CmStatusReply) == 392);

// A program's identifier (rdma_cm_id), as a record of the file that comes with a CmIdsReply.
struct CmIdRecord {
  int32_t pid;  // 0 if in a pid namespace invisible to the agent
  uint32_t uid;
  uint32_t number;        // unique among the agent's identifiers
  uint32_t device_index;  // kNoDevice if not bound to a device
  uint32_t local_qpn;     // 0 if unknown
  uint16_t port_space;    // enum rdma_port_space
  uint8_t qp_type;        // enum ibv_qp_type
  uint8_t state;          // the kernel's enum rdma_cm_state
  CmAddress source;       // with port
  CmAddress destination;
  char program[kProgramBytes];
};
static_assert(sizeof(CmIdRecord) == 136);
inline constexpr uint32_t kNoDevice = UINT32_MAX;

struct CmIdsReply {
  MessageHeader header;
  uint32_t count;     // records in the file
  uint32_t left_out;  // records left out of it
};
static_assert(sizeof(CmIdsReply) == 24);
inline constexpr uint32_t kMaxCmIdRecords = 1u << 16;

}  // namespace verbena::protocol
