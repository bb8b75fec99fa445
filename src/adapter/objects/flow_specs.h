// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "wire/ethernet/steering_table.h"

namespace verbena::adapter {

// A flow rule of ibv_create_flow(3), parsed and checked.
struct FlowRequest {
  ethernet::SteeringRule rule;
  bool sniffs = false;  // IBV_FLOW_ATTR_SNIFFER: gets a copy of every frame, whatever the rules say
  bool drops = false;   // IBV_FLOW_SPEC_ACTION_DROP
  uint32_t tag = 0;     // IBV_FLOW_SPEC_ACTION_TAG
  ibv_counters* counters = nullptr;  // IBV_FLOW_SPEC_ACTION_COUNT
};

// The numeric value of an enum that the application filled in, possibly with none of the enumerators.
template <class Enum>
uint32_t number_in(const Enum& from) {
  static_assert(sizeof from == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &from, sizeof number);
  return number;
}

// Parses a flow rule and makes the checks of libibverbs and the kernel's ib_uverbs. EINVAL for rules that no
// device takes, EOPNOTSUPP for those that only this adapter lacks. Reads attr.num_of_specs specs behind the
// struct.
Result<FlowRequest> parse_flow(const ibv_flow_attr& attr);

}  // namespace verbena::adapter
