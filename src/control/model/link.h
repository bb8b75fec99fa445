// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::control {

inline constexpr uint32_t kGidTableLength = 1024;

// One entry of a link's GID table. Its index stays the same as long as the address exists; a removed entry
// leaves a hole.
struct GidEntry {
  uint32_t index = 0;
  roce::Address gid;

  friend bool operator==(const GidEntry&, const GidEntry&) = default;
};

// An RDMA link over a netdev; programs see it as an ibv_device with one port.
struct Link {
  std::string name;           // the device's name: rxe_eth0, or as given to `link add`
  uint32_t device_index = 0;  // unique while the agent lives; never used again for another device
  std::string netdev;
  uint32_t interface_index = 0;
  std::array<uint8_t, 6> mac{};
  uint32_t mtu = 0;                   // of the netdev
  uint32_t speed = 0;                 // Mb/s, as the netdev reports, in whole 100 Mb/s; 0: unknown
  bool up = false;                    // the netdev is up and has carrier
  bool has_wire = true;               // the agent has UDP port 4791, so that other hosts can be reached
  bool automatic = false;             // not added by a user
  std::vector<GidEntry> gids{};       // by index, without the holes
  std::vector<roce::Prefix> peers{};  // the hosts that it accepts packets from; empty: all
  // The networks of its addresses, if they have other hosts. Only the agent knows them: they are not in the
  // link table's file.
  std::vector<roce::Prefix> networks{};

  friend bool operator==(const Link&, const Link&) = default;

  // The port's state, wherever it is shown: ACTIVE or DOWN. Programs of this host reach each other by shared
  // memory even if it is DOWN because there is no wire.
  bool is_active() const { return up && has_wire; }
};

// The link's 64-bit GUID in wire order: EUI-64 from the MAC address; for a netdev without one, made from the
// interface index with the "local" bit set.
std::array<uint8_t, 8> guid_of(const Link& link);

}  // namespace verbena::control
