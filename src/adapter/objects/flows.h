// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "wire/ethernet/steering.h"

namespace verbena::adapter {

// A flow rule of ibv_create_flow(3), parsed and checked.
struct FlowRequest {
  ethernet::SteeringRule rule;
  bool sniffs = false;  // IBV_FLOW_ATTR_SNIFFER: the QP gets a copy of every frame, whatever the rules say
  bool drops = false;   // IBV_FLOW_SPEC_ACTION_DROP
  uint32_t tag = 0;     // IBV_FLOW_SPEC_ACTION_TAG
  ibv_counters* counters = nullptr;  // IBV_FLOW_SPEC_ACTION_COUNT
};

// Returns the number in an enum field that the application filled in. The number may be none of the
// enumerators, so it is copied as bytes.
template <class Enum>
uint32_t number_in(const Enum& from) {
  static_assert(sizeof from == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &from, sizeof number);
  return number;
}

// Parses a flow rule and makes the checks of libibverbs and the kernel's ib_uverbs. Returns EINVAL for rules
// that every device refuses, and EOPNOTSUPP for rules that other devices support. REQUIRES: attr.num_of_specs
// specs follow `attr` in memory
Result<FlowRequest> parse_flow(const ibv_flow_attr& attr);

}  // namespace verbena::adapter
