// SPDX-License-Identifier: Apache-2.0
#include "adapter/process/host_addresses.h"

#include <algorithm>
#include <cstring>

#include <ifaddrs.h>
#include <netinet/in.h>

namespace verbena::engine {
namespace {

// The link-local addresses of this host's interfaces, as the kernel reports them.
std::vector<roce::Address> assigned_link_local() {
  std::vector<roce::Address> assigned;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return assigned;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET6) continue;
    roce::Address address;
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr,
                address.bytes.size());
    if (address.is_link_local()) assigned.push_back(address);
  }
  ::freeifaddrs(list);
  return assigned;
}

}  // namespace

HostAddresses host_addresses(const std::vector<control::Link>& links) {
  const std::vector<roce::Address> assigned = assigned_link_local();
  HostAddresses addresses;
  for (const control::Link& link : links) {
    for (const control::GidEntry& entry : link.gids) {
      const bool is_assigned =
          !entry.gid.is_link_local() || std::ranges::find(assigned, entry.gid) != assigned.end();
      (link.up && is_assigned ? addresses.reachable : addresses.unreachable).push_back(entry.gid);
    }
  }
  return addresses;
}

}  // namespace verbena::engine
