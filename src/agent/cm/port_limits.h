// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/cm/port_space.h"
#include "base/time.h"

namespace verbena::agent {

// Reads the network namespace's settings for ports from /proc/sys. Reads them again when they are more than a
// second old, because they may change.
class PortLimits {
 public:
  // Returns net.ipv4.ip_local_port_range.
  PortRange ephemeral();
  // Returns the lowest port that unprivileged programs may use (net.ipv4.ip_unprivileged_port_start).
  uint16_t first_unprivileged();
  // Returns net.ipv6.bindv6only: the IPv6 wildcard excludes IPv4. RDMA_OPTION_ID_AFONLY overrides it.
  bool ipv6_only();

 private:
  void refresh();

  TimePoint read_at_{};
  PortRange range_;
  uint16_t first_unprivileged_ = 1024;
  bool ipv6_only_ = false;
};

}  // namespace verbena::agent
