// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <linux/filter.h>

#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::net {

// A link that is to hear some hosts only.
struct GuardedLink {
  uint32_t interface_index = 0;
  std::vector<roce::Address> addresses;  // its own
  std::vector<roce::Prefix> peers;       // whom it hears
};

// A program for SO_ATTACH_FILTER on a socket of the port: lets a packet through unless it came in by the
// netdev of a guarded link, or for an address of one, from a host that the link does not hear. Loopback is
// not asked: what comes by it is of this host. So the kernel drops strangers' packets before anybody has read
// a byte of them. Empty: there is nothing to drop. With more than the kernel takes (4,096 instructions) all
// that comes from outside is dropped.
std::vector<sock_filter> peer_filter(std::span<const GuardedLink> links);

}  // namespace verbena::net
