// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/cm/port_space.h"
#include "base/time.h"

namespace verbena::agent {

// The network namespace's settings for ports, such as net.ipv4.ip_local_port_range. Reads them again after a
// second, because they may change.
class PortLimits {
 public:
  PortRange ephemeral();
  // Returns the lowest port that unprivileged programs may use.
  uint16_t first_unprivileged();
  // Returns net.ipv6.bindv6only: IPv6's wildcard does not include IPv4, unless the program sets the option.
  bool ipv6_only();

 private:
  void refresh();

  TimePoint read_at_{};
  PortRange range_;
  uint16_t first_unprivileged_ = 1024;
  bool ipv6_only_ = false;
};

}  // namespace verbena::agent
