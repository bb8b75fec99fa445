// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/cm/port_space.h"
#include "base/time.h"

namespace verbena::agent {

// What the network namespace says of ports: net.ipv4.ip_local_port_range and others. Read
// again after a while, for they may change.
class PortLimits {
 public:
  PortRange ephemeral();
  // Ports below are for privileged programs.
  uint16_t first_unprivileged();
  // net.ipv6.bindv6only: IPv6's wildcard is not IPv4's too, unless the program says so.
  bool ipv6_only();

 private:
  void refresh();

  TimePoint read_at_{};
  PortRange range_;
  uint16_t first_unprivileged_ = 1024;
  bool ipv6_only_ = false;
};

}  // namespace verbena::agent
