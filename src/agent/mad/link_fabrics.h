// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"
#include "management/mad/performance.h"
#include "management/mad/subnet.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// A link, the simulated subnet that programs see on it, and the performance management of two ports: the
// link's own and the switch port in front of it.
struct LinkFabric {
  control::Link link;
  mad::Subnet subnet;
  mad::Performance own_performance{};
  mad::Performance switch_performance{};

  // Returns the path to `destination`, or nullopt. The source is an address of this link of the same kind:
  // IPv4, IPv6 link-local, or other IPv6.
  std::optional<roce::Path> path_to(const roce::Address& destination) const;
};

// Owns the LinkFabric of each link. Pure: no system calls.
class LinkFabrics {
 public:
  // `host`: this host's name. An adapter's description is the host's name and the link's.
  explicit LinkFabrics(std::string host) : host_(std::move(host)) {}

  void links_changed(const std::vector<control::Link>& links);
  LinkFabric* find(uint32_t device_index);
  std::map<uint32_t, LinkFabric>& all() { return fabrics_; }

 private:
  std::string host_;
  std::map<uint32_t, LinkFabric> fabrics_;  // by device index
};

mad::Adapter adapter_of(const control::Link& link, const std::string& host);
// Returns a link's counters in InfiniBand's form, which counts words of four bytes instead of octets.
mad::PortCounters port_counters_of(const control::DeviceCounters& counters);

}  // namespace verbena::agent
