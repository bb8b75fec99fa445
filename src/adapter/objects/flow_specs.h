// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "wire/ethernet/steering_table.h"

namespace verbena::adapter {

// A flow rule as ibv_create_flow(3) describes it, understood.
struct FlowRequest {
  ethernet::SteeringRule rule;
  bool sniffs = false;               // IBV_FLOW_ATTR_SNIFFER: a copy of all there is, beside the rules
  bool drops = false;                // IBV_FLOW_SPEC_ACTION_DROP
  uint32_t tag = 0;                  // IBV_FLOW_SPEC_ACTION_TAG
  ibv_counters* counters = nullptr;  // IBV_FLOW_SPEC_ACTION_COUNT
};

// The number in an enum that the application filled in, which may be none of the enum's values.
template <class Enum>
uint32_t number_in(const Enum& from) {
  static_assert(sizeof from == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &from, sizeof number);
  return number;
}

// Checks as libibverbs and the kernel's ib_uverbs do. EINVAL for what no device takes, EOPNOTSUPP for what
// we do not. The specs that follow the struct are read as it says how many there are.
Result<FlowRequest> parse_flow(const ibv_flow_attr& attr);

}  // namespace verbena::adapter
