// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "adapter/net/net_namespace.h"
#include "adapter/net/udp/udp_port.h"
#include "wire/roce/path.h"

namespace verbena::bench {

using Clock = std::chrono::steady_clock;

// The addresses of two ends on this machine: loopback, other addresses, or two network namespaces joined by a
// veth pair.
struct Ends {
  static Ends loopback(bool ipv6);
  static Ends between(const std::string& sender, const std::string& receiver);
  static Ends veth(bool ipv6, int mtu);

  roce::Path there;  // sender to receiver
  roce::Path back;
  std::unique_ptr<net::testing::TwoHosts> hosts;  // null on loopback
};

// The traffic of a measurement and its duration.
struct Load {
  uint32_t packet_bytes = 4112;  // UDP payload of a full packet, with headers and ICRC
  uint32_t window_bytes = 128 << 10;
  Clock::duration duration = std::chrono::milliseconds(500);

  // Packets per super-packet, and the maximum in flight. The latter is a multiple of the former: otherwise
  // the rest would be sent as a smaller super-packet each time.
  uint32_t packets_per_send() const { return std::min(64u, 65507 / packet_bytes); }
  uint32_t packets_in_flight() const {
    return std::max(1u, window_bytes / (packets_per_send() * packet_bytes)) * packets_per_send();
  }
};

struct Rate {
  double gigabits_per_second = 0;  // UDP payload only
  double packets_per_second = 0;
  uint64_t lost = 0;
  // Busy time per packet, without waiting; 0 if not measured.
  double sender_ns = 0;
  double receiver_ns = 0;
};

// Runs both functions at once, each in a thread pinned to its own processor and in its end's namespace.
// Returns when both have returned.
void run_pinned(const Ends& ends, const std::function<void()>& sender, const std::function<void()>& receiver);

// A UdpPort at each end, created in the end's namespace. On loopback they are slots 0 (sender) and 1
// (receiver) of one SO_REUSEPORT group; on a veth pair each is slot 0.
struct PortPair {
  explicit PortPair(const Ends& ends);

  std::unique_ptr<net::UdpPort> sender;
  std::unique_ptr<net::UdpPort> receiver;
  uint32_t sender_slot = 0;
  uint32_t receiver_slot = 0;
};

[[noreturn]] void die(const std::string& what);

Rate raw_blast(const Ends& ends, const Load& load);
Rate port_blast(const Ends& ends, const Load& load);

// Half round trips in nanoseconds with 64-byte payloads, where both ends busy-poll: median and 99th
// percentile.
struct RoundTrip {
  double median_ns = 0;
  double p99_ns = 0;
};
RoundTrip raw_round_trip(const Ends& ends, uint32_t count);
RoundTrip port_round_trip(const Ends& ends, uint32_t count);

}  // namespace verbena::bench
