// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "ethernet/steering_table.h"

namespace verbena::adapter {

// A flow rule as ibv_create_flow(3) describes it, understood.
struct FlowRequest {
  ethernet::SteeringRule rule;
  bool sniffs = false;               // IBV_FLOW_ATTR_SNIFFER: a copy of all there is, beside the rules
  bool drops = false;                // IBV_FLOW_SPEC_ACTION_DROP
  uint32_t tag = 0;                  // IBV_FLOW_SPEC_ACTION_TAG
  ibv_counters* counters = nullptr;  // IBV_FLOW_SPEC_ACTION_COUNT
};

// Checks as libibverbs and the kernel's ib_uverbs do. EINVAL for what no device takes, EOPNOTSUPP for what
// we do not. The specs that follow the struct are read as it says how many there are.
Result<FlowRequest> parse_flow(const ibv_flow_attr& attr);

}  // namespace verbena::adapter
