// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"

namespace verbena::transport {

// The traits of a wire route over sockets: many packets per system call, and losses are possible.
inline constexpr Traits kSocketTraits{.max_payload = 4096,
                                      .burst_bytes = 65507,
                                      .burst_packets = 64,
                                      .charge_per_packet = 64,
                                      .lossless = false,
                                      .progress = Traits::Progress::kDescriptor,
                                      .blind_burst_bytes = 160 * 1024,
                                      .blind_bytes_per_microsecond = 1250};

// The traits of a shared-memory route to another process of this host: small messages travel in batches, and
// nothing is lost.
inline constexpr Traits kMemoryTraits{.max_payload = 4096,
                                      .burst_bytes = 1 << 20,
                                      .burst_packets = 256,
                                      .joined_bytes = 4096,
                                      .joined_messages = kMaxJoinedMessages,
                                      .carries_acknowledgements = true,
                                      .lossless = true};

// Returns the same route for every path.
class TestRoutes final : public Routes {
 public:
  std::string obstacle(const roce::Path&, roce::Qpn) override { return known_obstacle; }
  std::string known_obstacle;

  explicit TestRoutes(PacketSink& sink, const Traits& traits = kSocketTraits)
      : route{.traits = traits, .sink = &sink} {}
  const Route& find(const roce::Path&, roce::Qpn) override {
    ++asked;
    return route;
  }
  const Route& find_known(const roce::Path&, roce::Qpn) override { return route; }

  bool is_coming(const roce::Path&, roce::Qpn) override { return coming; }

  Route route;
  int asked = 0;
  bool coming = false;
};

}  // namespace verbena::transport
