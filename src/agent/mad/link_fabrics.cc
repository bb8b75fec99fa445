// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/link_fabrics.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "control/model/port_attributes.h"

namespace verbena::agent {
namespace {

using control::Link;

// Whether both addresses are IPv4, both are link-local, or both are neither.
bool are_of_one_kind(const roce::Address& one, const roce::Address& other) {
  return one.is_ipv4() == other.is_ipv4() && one.is_link_local() == other.is_link_local();
}

}  // namespace

std::optional<roce::Path> LinkFabric::path_to(const roce::Address& destination) const {
  for (const auto& entry : link.gids) {
    if (!are_of_one_kind(entry.gid, destination)) continue;
    roce::Path path;
    path.source = entry.gid;
    path.destination = destination;
    path.interface_index = link.interface_index;
    return path;
  }
  return std::nullopt;
}

mad::Adapter adapter_of(const Link& link, const std::string& host) {
  mad::Adapter adapter;
  adapter.guid = load_be<uint64_t>(control::guid_of(link).data());
  adapter.description = verbena::format("{} {}", host, link.name).substr(0, mad::kMaxDescriptionBytes);
  adapter.megabits = link.speed;
  adapter.path_mtu = control::path_mtu_of(link.mtu);
  adapter.up = link.is_active();
  adapter.network = mad::network_of(link.networks);
  return adapter;
}

mad::PortCounters port_counters_of(const control::DeviceCounters& counters) {
  constexpr uint64_t kBytesOfWord = 4;
  mad::PortCounters port;
  port.sent_words = counters[transport::kSentOctets] / kBytesOfWord;
  port.received_words = counters[transport::kReceivedOctets] / kBytesOfWord;
  port.sent_packets = counters[transport::kSentPackets];
  port.received_packets = counters[transport::kReceivedPackets];
  port.multicast_sent = counters[transport::kMulticastSent];
  port.multicast_received = counters[transport::kMulticastReceived];
  port.unicast_sent = control::rest_of(port.sent_packets, port.multicast_sent);
  port.unicast_received = control::rest_of(port.received_packets, port.multicast_received);
  port.link_downed = counters.link_downed;
  return port;
}

void LinkFabrics::links_changed(const std::vector<Link>& links) {
  std::erase_if(fabrics_, [&](const auto& entry) {
    return std::ranges::find(links, entry.first, &Link::device_index) == links.end();
  });
  for (const Link& link : links) {
    mad::Adapter adapter = adapter_of(link, host_);
    const auto known = fabrics_.find(link.device_index);
    if (known == fabrics_.end()) {
      fabrics_.emplace(link.device_index, LinkFabric{link, mad::Subnet(std::move(adapter))});
      continue;
    }
    known->second.link = link;
    known->second.subnet.change_own(std::move(adapter));
  }
}

LinkFabric* LinkFabrics::find(uint32_t device_index) {
  const auto found = fabrics_.find(device_index);
  return found != fabrics_.end() ? &found->second : nullptr;
}

}  // namespace verbena::agent
