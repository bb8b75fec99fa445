// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "roce/icrc.h"

namespace verbena::net::testing {

// A UDP datagram as it was on the wire.
struct Captured {
  roce::IcrcFlow flow;
  uint16_t identification = 0;  // IPv4
  bool dont_fragment = false;   // IPv4
  uint8_t hop_limit = 0;
  std::vector<std::byte> udp_payload;
};

// Sees every frame that comes in at a device, as a packet socket in the calling thread's namespace does.
class Capture {
 public:
  explicit Capture(const std::string& device);

  // The UDP datagrams to `port` seen so far, at least `wanted` of them unless none comes for some seconds.
  std::vector<Captured> take(uint16_t port, size_t wanted);

 private:
  UniqueFd fd_;
};

}  // namespace verbena::net::testing
