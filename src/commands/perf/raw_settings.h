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

// The settings that only tests for raw Ethernet have. The ends of these tests exchange nothing. So the
// command line of each end has the addresses of both ends, and says whether the end is the client or the
// server.
struct RawSettings {
  // Stands for a different priority in each frame, in turn. VLAN priorities are 0 to 7.
  static constexpr std::uint8_t kVaryingPriority = 8;

  std::optional<bool> is_client;
  std::optional<MacAddress> own_mac;
  std::optional<MacAddress> peer_mac;
  // The IP addresses as text, because --raw_ipv6 may come after them on the command line. settle_raw() checks
  // them. Empty: none.
  std::string server_ip;
  std::string client_ip;
  std::string own_ip;  // own_* and peer_*: perftest's other names of the same addresses and ports
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
  std::uint32_t flows = 1;        // flows differ by their ports: those of flow k are k higher
  std::uint32_t flow_burst = 1;   // frames of one flow that follow each other
  std::uint32_t reply_every = 1;  // raw_ethernet_burst_lat: frames for each answer
  bool forwards = false;          // sends each frame that has arrived back to its source
  bool takes_all = false;         // also receives the frames that no other flow rule takes
  bool sniffs = false;            // also receives copies of all frames
  bool is_multicast = false;      // frames go to the multicast group of the server's IP address
  // Whether the adapter limits the rate instead of the program (--rate_limit_type=PP). settle_raw() sets
  // `pacing` to the rate in kbit/s.
  bool is_paced = false;
  std::uint32_t pacing = 0;

  // Returns the number of different frames that a queue pair sends in turn.
  std::uint32_t frames() const;
};

// Checks and derives the settings of a test for raw Ethernet. Throws std::invalid_argument if they contradict
// each other. REQUIRES: parameters.raw
void settle_raw(Parameters& parameters);

// sent_frame() returns the fields of this end's frame number `number`. received_frame() returns the fields of
// the frames of flow `flow` that this end receives; these fields have no VLAN tag. Numbers and flows begin at
// 0. REQUIRES: settle_raw() has run
FrameFields sent_frame(const Parameters& parameters, std::uint32_t number);
FrameFields received_frame(const Parameters& parameters, std::uint32_t flow);

}  // namespace verbena::perf
