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
  uint32_t fragments = 1;  // that it came in
  std::vector<std::byte> udp_payload;
};

// Sees every frame that comes in at a device, as a packet socket in the calling thread's namespace does.
class Capture {
 public:
  explicit Capture(const std::string& device);

  // The UDP datagrams to `port` seen so far, at least `wanted` of them unless none comes for some seconds.
  // Fragments are put together.
  std::vector<Captured> take(uint16_t port, size_t wanted);

 private:
  // The fragments of one datagram, in the order in which they come: the first one's IP header, and the
  // payload.
  struct Parts {
    std::vector<uint8_t> packet;
    uint32_t count = 0;
  };
  // The datagram that this fragment completes; empty: some are missing. Other packets stay as they are.
  std::pair<std::vector<uint8_t>, uint32_t> join(std::span<const uint8_t> ip);

  std::map<uint32_t, Parts> parts_;  // by identification
  UniqueFd fd_;
};

}  // namespace verbena::net::testing
