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

// A link with the fabric that it sees, and the performance managers of its port and of the switch port in
// front of it.
struct LinkFabric {
  control::Link link;
  mad::Subnet subnet;
  mad::Performance own_performance{};
  mad::Performance switch_performance{};

  // Returns the path to an address, from an address of the same kind of this link. Nothing if the link has
  // none.
  std::optional<roce::Path> path_to(const roce::Address& destination) const;
};

// The fabrics of all links. Pure.
class LinkFabrics {
 public:
  // `host`: the name of this host's adapters.
  explicit LinkFabrics(std::string host) : host_(std::move(host)) {}

  void links_changed(const std::vector<control::Link>& links);
  LinkFabric* find(uint32_t device_index);
  std::map<uint32_t, LinkFabric>& all() { return fabrics_; }

 private:
  std::string host_;
  std::map<uint32_t, LinkFabric> fabrics_;  // by device index
};

mad::Adapter adapter_of(const control::Link& link, const std::string& host);
mad::PortCounters port_counters_of(const control::DeviceCounters& counters);

}  // namespace verbena::agent
