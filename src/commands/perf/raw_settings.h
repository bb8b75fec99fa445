// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/perf/raw_frame.h"

namespace verbena::perf {

struct Parameters;

// The bytes that an adapter appends to each frame: its frame check sequence (IEEE 802.3, 3.2.9). perftest
// counts them as a part of a frame's size.
inline constexpr std::uint32_t kFrameCheckBytes = 4;

// The settings that only tests for raw Ethernet have. Nothing is exchanged between the ends: each is told its
// own side, and the addresses of both.
struct RawSettings {
  // VLAN priorities are 0 to 7; this one stands for another one in each frame.
  static constexpr std::uint8_t kVaryingPriority = 8;

  std::optional<bool> is_client;
  std::optional<MacAddress> own_mac;
  std::optional<MacAddress> peer_mac;
  // Texts until settle_raw(): --raw_ipv6 may follow them. Empty: none.
  std::string server_ip;
  std::string client_ip;
  std::string own_ip;  // perftest's other names of the same addresses, as the ports below
  std::string peer_ip;
  std::uint16_t server_port = 0;  // 0: none
  std::uint16_t client_port = 0;
  std::uint16_t own_port = 0;
  std::uint16_t peer_port = 0;

  std::optional<std::uint16_t> ether_type;
  std::optional<std::uint8_t> vlan_priority;
  bool is_ipv6 = false;
  bool is_tcp = false;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
  std::uint32_t flows = 1;        // frames differ by their ports: those of flow k are k higher
  std::uint32_t flow_burst = 1;   // frames of one flow that follow each other
  std::uint32_t reply_every = 1;  // raw_ethernet_burst_lat: frames for each answer
  bool forwards = false;          // sends what has come back to where it came from
  bool takes_all = false;         // frames that no other flow rule takes, too
  bool sniffs = false;            // copies of all frames, too
  bool is_multicast = false;      // frames go to the multicast group of the server's IP address
  // The adapter limits the rate (--rate_limit_type=PP), to this many kbit/s after settle_raw().
  bool is_paced = false;
  std::uint32_t pacing = 0;

  // The number of different frames that a queue pair sends one after the other.
  std::uint32_t frames() const;
};

// Checks and derives the settings of a test for raw Ethernet. Throws std::invalid_argument if they contradict
// each other. REQUIRES: parameters.raw
void settle_raw(Parameters& parameters);

// Returns the fields of the frames with this number that this end sends, and those that it receives.
// REQUIRES: settle_raw() has run
FrameFields sent_frame(const Parameters& parameters, std::uint32_t number);
FrameFields received_frame(const Parameters& parameters, std::uint32_t flow);

}  // namespace verbena::perf
