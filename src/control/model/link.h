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

// One entry of a link's GID table. Its index stays the same as long as the address does; an entry that is
// gone leaves a hole.
struct GidEntry {
  uint32_t index = 0;
  roce::Address gid;

  friend bool operator==(const GidEntry&, const GidEntry&) = default;
};

// An RDMA link over a netdev: what becomes one ibv_device with one port.
struct Link {
  std::string name;           // the device's name: rxe_eth0, or what `link add` said
  uint32_t device_index = 0;  // unique while the agent lives; never used again for another device
  std::string netdev;
  uint32_t interface_index = 0;
  std::array<uint8_t, 6> mac{};
  uint32_t mtu = 0;                   // of the netdev
  uint32_t speed = 0;                 // Mb/s, as the netdev says; 0: it does not say. In whole 100 Mb/s
  bool up = false;                    // the netdev is up and has carrier
  bool has_wire = true;               // UDP port 4791 is the agent's, so that other hosts can be reached
  bool automatic = false;             // appeared by itself
  std::vector<GidEntry> gids{};       // by index, without the holes
  std::vector<roce::Prefix> peers{};  // the hosts it hears; empty: all
  // Of its addresses, as far as other hosts are in them. The agent alone knows them: no file has them.
  std::vector<roce::Prefix> networks{};

  friend bool operator==(const Link&, const Link&) = default;

  // The port's state, everywhere: ACTIVE or DOWN. Programs of this host reach each other by memory also while
  // it is DOWN because there is no wire.
  bool is_active() const { return up && has_wire; }
};

// The link's 64-bit GUID in wire order: EUI-64 from the MAC address; for a netdev without one, made from the
// interface index with the "local" bit set.
std::array<uint8_t, 8> guid_of(const Link& link);

}  // namespace verbena::control
