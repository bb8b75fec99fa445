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

// Finds links by what connection management knows of them. Pure; what it answers holds until the next
// update().
class LinkDirectory {
 public:
  struct Place {
    const control::Link* link;
    uint32_t gid_index;
  };

  void update(std::vector<control::Link> links);

  // The link that has the address; where several have it (link-local ones), the one over this netdev.
  std::optional<Place> find(const roce::Address& gid, uint32_t interface_index = 0) const;
  const control::Link* by_device(uint32_t device_index) const;
  // Where this host speaks to itself, when only the family is known (as the kernel's cma_bind_loopback()):
  // the loopback link if there is one, else the first that is up. Its first address that means something by
  // itself, else a link-local one.
  struct Loopback {
    const control::Link* link;
    roce::Address address;
  };
  std::optional<Loopback> loopback(bool ipv4) const;
  const control::Link* by_interface(uint32_t interface_index) const;
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
