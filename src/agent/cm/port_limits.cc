// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/port_limits.h"

#include <fstream>

namespace verbena::agent {
namespace {

constexpr Duration kLifespan = std::chrono::seconds(1);

}  // namespace

PortRange PortLimits::ephemeral() {
  refresh();
  return range_;
}

uint16_t PortLimits::first_unprivileged() {
  refresh();
  return first_unprivileged_;
}

bool PortLimits::ipv6_only() {
  refresh();
  return ipv6_only_;
}

void PortLimits::refresh() {
  const TimePoint now = MonotonicClock::now();
  if (read_at_ != TimePoint{} && now - read_at_ < kLifespan) return;
  read_at_ = now;
  uint32_t first = 0;
  uint32_t last = 0;
  if (std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last && first >= 1 &&
      first <= last && last <= 65535) {
    range_ = {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  }
  uint32_t start = 0;
  if (std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> start && start <= 65535) {
    first_unprivileged_ = static_cast<uint16_t>(start);
  }
  int only = 0;
  if (std::ifstream("/proc/sys/net/ipv6/bindv6only") >> only) ipv6_only_ = only != 0;
}

}  // namespace verbena::agent
