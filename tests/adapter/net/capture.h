// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "wire/roce/icrc.h"

namespace verbena::net::testing {

// A UDP datagram as it was on the wire.
struct Captured {
  roce::IcrcFlow flow;
  uint16_t identification = 0;  // IPv4
  bool dont_fragment = false;   // IPv4
  uint8_t hop_limit = 0;
  uint32_t fragments = 1;  // the number of fragments
  std::vector<std::byte> udp_payload;
};

// Captures every frame that arrives at a device, with a packet socket in the calling thread's namespace.
class Capture {
 public:
  explicit Capture(const std::string& device);

  // Returns the UDP datagrams to `port` captured so far. Waits for `wanted` of them, until none arrives for
  // some seconds. Reassembles fragments.
  std::vector<Captured> take(uint16_t port, size_t wanted);

 private:
  // The fragments of a datagram in the order of arrival: the first one's IP header, and the payload.
  struct Parts {
    std::vector<uint8_t> packet;
    uint32_t count = 0;
  };
  // Adds a packet. Returns the datagram that it completes and its number of fragments; empty while fragments
  // are missing. Unfragmented packets are returned unchanged.
  std::pair<std::vector<uint8_t>, uint32_t> join(std::span<const uint8_t> ip);

  std::map<uint32_t, Parts> parts_;  // keyed by identification
  UniqueFd fd_;
};

}  // namespace verbena::net::testing
