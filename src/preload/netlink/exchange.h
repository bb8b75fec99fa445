// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "preload/netlink/answer.h"
#include "preload/netlink/devices.h"
#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

using Outcome = control::AdminResult<void>;
inline Outcome refuse(int error, std::string why = {}) {
  return tl::unexpected(control::AdminError{error, std::move(why)});
}

// Every device has one.
inline constexpr uint32_t kPorts = 1;

// One request that is being answered: what was asked, whom to ask, and what has been said so far.
struct Exchange {
  const Request& request;
  Devices& devices;
  Answer& answer;
  control::AgentStatus status{};
  // What the request is about; nullptr: of all of them.
  const control::LinkStatus* device = nullptr;
  uint32_t port = 0;  // 0: none was said
};

// With which every message about a device begins.
Attributes handle_of(const control::Link& link);

// Carries out one request for one thing, or for a list of them. What they refuse is told to the program.
using Operation = Outcome (*)(Exchange& exchange);

Outcome get_device(Exchange& exchange);
Outcome dump_devices(Exchange& exchange);
Outcome set_device(Exchange& exchange);
Outcome add_link(Exchange& exchange);
Outcome delete_link(Exchange& exchange);
Outcome get_port(Exchange& exchange);
Outcome dump_ports(Exchange& exchange);
Outcome get_system(Exchange& exchange);
Outcome set_system(Exchange& exchange);
Outcome get_summary(Exchange& exchange);
Outcome dump_summaries(Exchange& exchange);

template <class Resource>
Outcome get_resource(Exchange& exchange);
template <class Resource>
Outcome dump_resources(Exchange& exchange);
struct Qps;
struct CmIds;
struct Cqs;
struct Mrs;
struct Pds;
struct Contexts;
struct Srqs;

Outcome get_statistics(Exchange& exchange);
Outcome dump_statistics(Exchange& exchange);
Outcome set_statistics(Exchange& exchange);
Outcome get_statistics_mode(Exchange& exchange);

}  // namespace verbena::rdma_netlink
