// SPDX-License-Identifier: Apache-2.0
// The names of enum values. Programs print them and scripts match them, so they are part of the interface.
#include "adapter/queues/status_words.h"
#include "libraries/libibverbs/abi.h"

using verbena::queues::kCompletionStatuses;
using verbena::queues::kEventTypes;

namespace {

// Negative values wrap to large ones, which are unknown.
template <size_t kCount>
const char* name_of(const char* const (&names)[kCount], int value) {
  const auto index = static_cast<size_t>(static_cast<unsigned>(value));
  return index < kCount ? names[index] : "unknown";
}

constexpr int kFirstNodeType = IBV_NODE_CA;
constexpr const char* kNodeTypes[] = {
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};
static_assert(std::size(kNodeTypes) == IBV_NODE_UNSPECIFIED - kFirstNodeType + 1);

constexpr const char* kPortStates[] = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};
static_assert(std::size(kPortStates) == IBV_PORT_ACTIVE_DEFER + 1);

// The table has one event type more than the headers of the build.
static_assert(std::size(kEventTypes) == IBV_EVENT_WQ_FATAL + 2);

static_assert(std::size(kCompletionStatuses) == IBV_WC_TM_RNDV_INCOMPLETE + 1);

// enum ibv_wr_opcode of rdma-core 65
constexpr const char* kOpcodes[] = {
    "rdma-write",
    "rdma-write-with-imm",
    "send",
    "send-with-imm",
    "rdma-read",
    "atomic-cmp-and-swp",
    "atomic-fetch-and-add",
    "local-inv",
    "bind-mw",
    "send-with-inv",
    "tso",
    "driver1",
    "unknown",
    "unknown",
    "flush",
    "atomic-write",
};
static_assert(std::size(kOpcodes) == IBV_WR_ATOMIC_WRITE + 1);

}  // namespace

VERBENA_ABI const char* ibv_node_type_str(ibv_node_type type) {
  return name_of(kNodeTypes, static_cast<int>(type) - kFirstNodeType);
}

VERBENA_ABI const char* ibv_port_state_str(ibv_port_state state) {
  return name_of(kPortStates, state);
}

VERBENA_ABI const char* ibv_event_type_str(ibv_event_type event) {
  return name_of(kEventTypes, event);
}

VERBENA_ABI const char* ibv_wc_status_str(ibv_wc_status status) {
  return name_of(kCompletionStatuses, status);
}

VERBENA_ABI const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  return name_of(kOpcodes, opcode);
}
