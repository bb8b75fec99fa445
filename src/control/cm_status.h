// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cm/counters.h"
#include "cm/parameters.h"
#include "control/protocol.h"

namespace verbena::control {

// What an agent counts of connection management, for whoever looks at it.
struct CmStatus {
  // Identifiers of programs: all; those that listen; those that wait for a neighbour.
  uint32_t identifiers;
  uint32_t listening;
  uint32_t resolving;
  // Connections without a program, that only wait until no packet of theirs can be on its way.
  uint32_t waiting;
  uint32_t connections[cm::kStates];  // of programs, by cm::State
  uint32_t reserved;
  uint64_t sent[cm::kMessageTypes];  // by cm::MessageType
  uint64_t received[cm::kMessageTypes];
  uint64_t retransmitted;
  uint64_t duplicates;
  uint64_t timed_out;
  uint64_t stale_connections;
  uint64_t dropped[cm::kDropReasons];  // by cm::DropReason
  uint64_t bad_qkey;                   // and datagrams to QP1 that were none of connection management
  uint64_t unknown_class;
};

struct CmStatusReply {
  MessageHeader header;
  CmStatus status;
};
static_assert(sizeof(CmStatus) == 80 + 8 * (2 * cm::kMessageTypes + 4 + cm::kDropReasons + 2));
static_assert(sizeof(CmStatusReply) <= kMaxMessageBytes);

}  // namespace verbena::control
