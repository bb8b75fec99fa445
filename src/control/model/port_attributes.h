// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace verbena::control {

// The largest number of header bytes that RoCEv2 adds to a packet's payload, as in the kernel's rxe. A path
// MTU fits a network device whose MTU is at least this much larger.
inline constexpr uint32_t kPacketOverhead = 80;

// Returns the path MTU for a netdev's MTU, as enum ibv_mtu: the largest that fits together with the RoCEv2
// headers, but at least 256 bytes; a netdev MTU of 1500 gives 1024.
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

// Speed assumed for a netdev that reports none, such as loopback, a bridge and most virtual netdevs. They are
// as fast as the CPU; the value is the one that veth reports.
inline constexpr uint32_t kAssumedMegabits = 10'000;

constexpr const PortSpeed& port_speed_of(uint32_t megabits) {
  if (megabits == 0) megabits = kAssumedMegabits;
  for (const PortSpeed& each : kPortSpeeds) {
    if (megabits <= each.megabits) return each;
  }
  return kPortSpeeds.back();
}

}  // namespace verbena::control
