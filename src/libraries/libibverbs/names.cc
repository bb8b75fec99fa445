// SPDX-License-Identifier: Apache-2.0
// The names of enum values, and conversion of static rates, SDR to XDR. Programs print the names and scripts
// match them, so they are part of the interface.
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

namespace {

struct Rate {
  ibv_rate rate;
  int multiple;  // of 2.5 Gb/s, if IBTA vol 1, 11.2.3.1 defines the number; else -1
  int mbps;      // without line coding: 14 Gb/s is 14062.5
};

constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},         {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},      {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, -1, 14062},    {IBV_RATE_56_GBPS, -1, 56250},      {IBV_RATE_112_GBPS, -1, 112500},
    {IBV_RATE_168_GBPS, -1, 168750},  {IBV_RATE_25_GBPS, -1, 25781},      {IBV_RATE_100_GBPS, -1, 103125},
    {IBV_RATE_200_GBPS, -1, 206250},  {IBV_RATE_300_GBPS, -1, 309375},    {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},   {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

}  // namespace

VERBENA_ABI int ibv_rate_to_mult(ibv_rate rate) {
  const Rate* const known = std::ranges::find(kRates, rate, &Rate::rate);
  return known != std::end(kRates) ? known->multiple : -1;
}

VERBENA_ABI ibv_rate mult_to_ibv_rate(int multiple) {
  for (const Rate& known : kRates) {
    if (known.multiple == multiple && multiple > 0) return known.rate;
  }
  return IBV_RATE_MAX;
}

VERBENA_ABI int ibv_rate_to_mbps(ibv_rate rate) {
  const Rate* const known = std::ranges::find(kRates, rate, &Rate::rate);
  return known != std::end(kRates) ? known->mbps : -1;
}

VERBENA_ABI ibv_rate mbps_to_ibv_rate(int mbps) {
  const Rate* const known = std::ranges::find(kRates, mbps, &Rate::mbps);
  return known != std::end(kRates) ? known->rate : IBV_RATE_MAX;
}
