// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include <sys/socket.h>

#include "control/model/link.h"
#include "control/protocol/connection_messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

using protocol::CmAddress;

// These functions apply the kernel rdma_cm's rules about socket addresses to the agent protocol's CmAddress.
// They take and return ports in host order; CmAddress::port is in network order. Pure: no system calls.

inline bool has_known_family(const CmAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6;
}

// Returns the IP address as a GID, an IPv4 address in mapped form (::ffff:a.b.c.d). Ignores port and scope
// ID. REQUIRES: has_known_family(address)
roce::Address gid_of(const CmAddress& address);
// Returns the GID as a socket address: AF_INET if the GID is an IPv4-mapped one, otherwise AF_INET6.
// `scope_id`, a netdev's index, is used only for a link-local GID.
CmAddress address_of(const roce::Address& gid, uint16_t port = 0, uint32_t scope_id = 0);

uint16_t port_of(const CmAddress& address);
void set_port(CmAddress& address, uint16_t port);

bool is_wildcard(const CmAddress& address);
bool is_loopback(const CmAddress& address);
// Returns whether the address is the wildcard or a loopback address, neither of which names a device. The
// kernel's rdma_cm treats both alike (cma_any_addr()): an identifier that is bound to 127.0.0.1 is tied to no
// link. libfabric relies on that when it chooses devices.
bool is_any_address(const CmAddress& address);
// Returns whether the address is an IPv6 link-local address, whose scope ID must name a netdev.
bool is_link_local(const CmAddress& address);
// Returns whether both have the same family and IP address. Ignores ports. Link-local addresses with
// different scope IDs are different.
bool is_same_host(const CmAddress& a, const CmAddress& b);

// Finds links by GID, device index or netdev index. Pure. Results are valid until the next update().
class LinkDirectory {
 public:
  // A link, and the index of the found address in its GID table.
  struct Place {
    const control::Link* link;
    uint32_t gid_index;
  };

  void update(std::vector<control::Link> links);

  // Returns the link that has the address, or nullopt. If several links have it (as a link-local address),
  // returns the one over netdev `interface_index`, or else the one with the lowest device index.
  std::optional<Place> find(const roce::Address& gid, uint32_t interface_index = 0) const;
  const control::Link* by_device(uint32_t device_index) const;
  // The link and address by which this host reaches itself if only the address family is known (as in the
  // kernel's cma_bind_loopback()). The order of preference is: a loopback address, another address that is
  // not link-local, a link-local address, an address of a link that is down.
  struct Loopback {
    const control::Link* link;
    roce::Address address;
  };
  // Returns nullopt if no link has an address of the family.
  std::optional<Loopback> loopback(bool ipv4) const;
  const std::vector<control::Link>& links() const { return links_; }

 private:
  struct Hash {
    size_t operator()(const roce::Address& gid) const;
  };

  std::vector<control::Link> links_;
  std::unordered_multimap<roce::Address, Place, Hash> by_gid_;
  std::unordered_map<uint32_t, const control::Link*> by_device_;
};

}  // namespace verbena::agent
