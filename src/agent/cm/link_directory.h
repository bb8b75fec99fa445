// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "control/model/link.h"
#include "wire/roce/path.h"

namespace verbena::agent {

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
