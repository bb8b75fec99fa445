// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent_client/device_counters.h"
#include "agent_client/link.h"
#include "base/time.h"
#include "fabric/performance.h"
#include "fabric/subnet.h"
#include "roce/path.h"

namespace verbena::agent {

// A link, the fabric that it sees, and the performance managers of its port and of the switch's in front of
// it.
struct LinkFabric {
  agent_client::Link link;
  fabric::Subnet subnet;
  fabric::Performance own_performance{};
  fabric::Performance switch_performance{};

  // By which of our addresses the other is reached. Nothing: the link has none of that family.
  std::optional<roce::Path> path_to(const roce::Address& destination) const;
};

// The fabrics of all links. Pure.
class LinkFabrics {
 public:
  // `host`: the name that adapters of this host go by.
  explicit LinkFabrics(std::string host) : host_(std::move(host)) {}

  void links_changed(const std::vector<agent_client::Link>& links);
  LinkFabric* find(uint32_t device_index);
  std::map<uint32_t, LinkFabric>& all() { return fabrics_; }

 private:
  std::string host_;
  std::map<uint32_t, LinkFabric> fabrics_;  // by device index
};

fabric::Adapter adapter_of(const agent_client::Link& link, const std::string& host);
fabric::PortCounters port_counters_of(const agent_client::DeviceCounters& counters);

}  // namespace verbena::agent
