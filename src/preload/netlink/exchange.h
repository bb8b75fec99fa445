// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "preload/netlink/service.h"

namespace verbena::rdma_netlink {

using Outcome = control::AdminResult<void>;
inline Outcome refuse(int error, std::string why = {}) {
  return tl::unexpected(control::AdminError{error, std::move(why)});
}

// The number of ports of every device.
inline constexpr uint32_t kPorts = 1;

// A request in progress: the request, the devices that it reads or changes, and the response so far.
struct Exchange {
  const Request& request;
  Devices& devices;
  Answer& answer;
  control::AgentStatus status{};  // empty if the command concerns no device
  // The device that the request names; nullptr if the request is about all devices or none.
  const control::LinkStatus* device = nullptr;
  uint32_t port = 0;  // 0 if the request names no port
};

// Returns the device's index and name, the attributes with which every message about a device begins.
Attributes handle_of(const control::Link& link);

// Adds messages to the answer: one about the request's device or, for a dump, one about each device.
// `describe` returns the attributes of a message.
Outcome tell_devices(Exchange& exchange, Attributes (*describe)(const Exchange&, const control::Link&));

// Carries out a request: gets or changes one object, or lists several (dump). If the operation refuses the
// request, the program gets the returned error and reason.
using Operation = Outcome (*)(Exchange& exchange);

// Each of these gets one object; get_devices(), get_port() and get_summaries() also list several.
Outcome get_devices(Exchange& exchange);
Outcome set_device(Exchange& exchange);
Outcome add_link(Exchange& exchange);
Outcome delete_link(Exchange& exchange);
Outcome get_port(Exchange& exchange);
Outcome get_system(Exchange& exchange);
Outcome set_system(Exchange& exchange);
Outcome get_summaries(Exchange& exchange);

// Get one object, or list all objects, of the kind that the request's command names.
Outcome get_resource(Exchange& exchange);
Outcome dump_resources(Exchange& exchange);
Outcome get_statistics(Exchange& exchange);
Outcome dump_statistics(Exchange& exchange);
Outcome set_statistics(Exchange& exchange);
Outcome get_statistics_mode(Exchange& exchange);

}  // namespace verbena::rdma_netlink
