// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <linux/filter.h>

#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::net {

// A link that accepts packets from some hosts only.
struct GuardedLink {
  uint32_t interface_index = 0;
  std::vector<roce::Address> addresses;  // of the link
  std::vector<roce::Prefix> peers;       // the hosts that it accepts
};

// Makes a program for SO_ATTACH_FILTER on a socket of the RoCEv2 port, so that the kernel drops packets of
// strangers before any process reads them. It drops packets that came in by a guarded link's netdev, or are
// addressed to such a link, if the link does not accept their source. Loopback packets pass, as they are of
// this host. Returns an empty program if there is nothing to drop. A program that would exceed the kernel's
// limit (4,096 instructions) is replaced by one that drops everything from outside.
std::vector<sock_filter> peer_filter(std::span<const GuardedLink> links);

}  // namespace verbena::net
