// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>
#include <verbena/verbs.hpp>

#include "commands/perf/raw_frame.h"

namespace verbena::perf {

struct DestroyFlow {
  void operator()(ibv_flow* last) const { ibv_destroy_flow(last); }
};
// A flow rule of a queue pair. The rule ends when this object is destroyed.
using Flow = std::unique_ptr<ibv_flow, DestroyFlow>;

// Describes the frames that a queue pair receives (ibv_create_flow(3)).
class FlowRule {
 public:
  // Matches frames with these fields. Always compares the destination MAC address. If `fields` has an
  // `ether_type`, compares that field besides, and no other. Otherwise compares the IP header, if `fields`
  // has one: both addresses, and traffic class and flow label if they are given. Then also compares both
  // ports of UDP or TCP, if `fields` has them. The frames may have any source MAC address and VLAN tag.
  // `port`: the number of the device's port.
  FlowRule(const FrameFields& fields, std::uint8_t port);
  // Matches frames without regard to their fields: those that no other rule takes
  // (IBV_FLOW_ATTR_ALL_DEFAULT), or copies of all frames (IBV_FLOW_ATTR_SNIFFER).
  FlowRule(ibv_flow_attr_type type, std::uint8_t port);

  // Adds the rule to a queue pair. Throws std::system_error.
  Flow attach(const verbena::qp& pair) const;

  const ibv_flow_attr& get() const { return *reinterpret_cast<const ibv_flow_attr*>(words_.data()); }

 private:
  void begin(ibv_flow_attr_type type, std::uint8_t port);
  template <class Spec>
  void add(const Spec& spec);

  std::vector<std::uint32_t> words_;  // the attributes, and the specs behind them
};

}  // namespace verbena::perf
