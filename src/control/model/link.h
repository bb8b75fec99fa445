// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/messages.h"
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::control {

// The number of entries of a link's GID table, used and unused.
inline constexpr uint32_t kGidTableLength = 1024;

// One entry of a link's GID table. The index of an entry stays the same as long as the address exists; a
// removed entry leaves its index unused.
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
  uint32_t speed = 0;                 // Mb/s, as the netdev reports, rounded down to 100 Mb/s; 0 if unknown
  bool up = false;                    // the netdev is up and has carrier
  bool has_wire = true;               // the agent has UDP port 4791, so that other hosts can be reached
  bool automatic = false;             // not added by a user
  std::vector<GidEntry> gids{};       // ordered by index, without unused indexes
  std::vector<roce::Prefix> peers{};  // the networks from which the link accepts packets; empty if from all
  // The networks of the netdev's addresses, without link-local ones and those that have only one address (/32
  // or /128). Only the agent has this list: it is not in the link table's file.
  std::vector<roce::Prefix> networks{};

  friend bool operator==(const Link&, const Link&) = default;

  // Returns true if the port's state is shown as ACTIVE, false if it is shown as DOWN. Programs of this host
  // reach each other by shared memory even if the port is DOWN because the agent lacks UDP port 4791.
  bool is_active() const { return up && has_wire; }
};

// Returns the link's 64-bit GUID in network byte order: the EUI-64 of the MAC address. Without a MAC address,
// it is made from the interface index with the "local" bit set.
std::array<uint8_t, 8> guid_of(const Link& link);

// Converts a network to the record that the agent's messages and the link table's file contain.
inline protocol::PeerRecord store_peer(const roce::Prefix& peer) {
  protocol::PeerRecord record{};
  std::ranges::copy(peer.network.bytes, record.network);
  record.bits = peer.bits;
  return record;
}

// Converts a record back to a network. Returns nullopt if the record is not a valid network.
inline std::optional<roce::Prefix> load_peer(const protocol::PeerRecord& record) {
  roce::Prefix peer;
  std::copy(std::begin(record.network), std::end(record.network), peer.network.bytes.begin());
  peer.bits = record.bits;
  const int least = peer.network.is_ipv4() ? roce::Prefix::kIpv4Bits : 0;
  const bool valid =
      peer.bits >= least && peer.bits <= 128 && roce::first_bits(peer.network, peer.bits) == peer.network;
  return valid ? std::optional(peer) : std::nullopt;
}

// The link table. The agent sends it to clients as a sealed memfd: one file serves all clients, and readers
// need no lock. Clients use only `links`. The next agent continues from the whole table.
struct LinkSnapshot {
  uint64_t generation = 0;         // increases with each change of the table
  uint32_t next_device_index = 0;  // Link::device_index of the next new link
  std::vector<uint32_t> deleted;   // interface indexes whose automatic link the user deleted
  std::vector<Link> links;         // in device order

  friend bool operator==(const LinkSnapshot&, const LinkSnapshot&) = default;
};

// Encodes a link table as protocol::LinkTableHeader describes.
std::vector<std::byte> encode_links(const LinkSnapshot& snapshot);
// Decodes a link table. Its records may have the lengths of another version. EPROTO if the table is invalid.
Result<LinkSnapshot> decode_links(ConstBytes bytes);

// Writes the table to a new sealed memfd, and returns it.
Result<UniqueFd> write_link_file(const LinkSnapshot& snapshot);
// Reads the table from a file of write_link_file(). EPROTO if it is invalid or not sealed against changes.
Result<LinkSnapshot> read_link_file(int fd);

// The largest number of header bytes that RoCEv2 adds to a packet's payload, as in the kernel's rxe. A path
// MTU fits a network device whose MTU is at least this much larger.
inline constexpr uint32_t kPacketOverhead = 80;

// Returns the path MTU for a netdev's MTU, as enum ibv_mtu. It is the largest that fits together with the
// RoCEv2 headers, but at least 256 bytes. A netdev MTU of 1500 gives 1024.
constexpr uint8_t path_mtu_of(uint32_t netdev_mtu) {
  uint8_t mtu = 5;  // IBV_MTU_4096
  while (mtu > 1 && netdev_mtu < (128u << mtu) + kPacketOverhead) --mtu;
  return mtu;
}

// A link speed in InfiniBand's terms: the number of lanes, and the speed of one lane.
struct PortSpeed {
  uint8_t width;      // ibv_port_attr::active_width
  uint8_t speed;      // ibv_port_attr::active_speed
  const char* text;   // as `rate` in /sys shows it
  uint32_t megabits;  // the entry is for Ethernet links of up to this speed
};

// Translates Ethernet speeds as the kernel does for a netdev that reports no lanes (ib_get_eth_speed()).
inline constexpr std::array kPortSpeeds = std::to_array<PortSpeed>({
    {1, 1, "2.5 Gb/sec (1X SDR)", 1'000},
    {1, 8, "10 Gb/sec (1X FDR10)", 10'000},
    {2, 2, "20 Gb/sec (4X DDR)", 20'000},
    {1, 32, "25 Gb/sec (1X EDR)", 25'000},
    {2, 8, "40 Gb/sec (4X FDR10)", 40'000},
    {16, 32, "50 Gb/sec (2X EDR)", 50'000},
    {2, 32, "100 Gb/sec (4X EDR)", 100'000},
    {2, 64, "200 Gb/sec (4X HDR)", 200'000},
    {2, 128, "400 Gb/sec (4X NDR)", 400'000},
});

// Speed assumed for a netdev that reports none, such as loopback, a bridge and most virtual netdevs. These
// netdevs are as fast as the CPU; the value is the one that veth reports.
inline constexpr uint32_t kAssumedMegabits = 10'000;

// Returns the entry for an Ethernet link of this speed in Mb/s. 0 means that the speed is unknown.
constexpr const PortSpeed& port_speed_of(uint32_t megabits) {
  if (megabits == 0) megabits = kAssumedMegabits;
  for (const PortSpeed& each : kPortSpeeds) {
    if (megabits <= each.megabits) return each;
  }
  return kPortSpeeds.back();
}

}  // namespace verbena::control
