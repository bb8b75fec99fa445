// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_settings.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/format.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {
namespace {

constexpr std::uint32_t kVlanPriorities = 8;
constexpr std::uint64_t kLeastAnswers = 5;
constexpr std::uint32_t kMaxFrames = 1 << 20;  // of one queue pair's memory

void require(bool holds, const char* sentence) {
  if (!holds) throw std::invalid_argument(sentence);
}

// perftest has two sets of names for addresses and ports: by role, or seen from this end.
void take_own_names(RawSettings& raw) {
  const bool has_own = !raw.own_ip.empty() || !raw.peer_ip.empty() || raw.own_port != 0 || raw.peer_port != 0;
  if (!has_own) return;
  require(raw.server_ip.empty() && raw.client_ip.empty() && raw.server_port == 0 && raw.client_port == 0,
          "-J, -j, -K, -k: not together with --local_* and --remote_*");
  const bool is_client = *raw.is_client;
  raw.server_ip = is_client ? raw.peer_ip : raw.own_ip;
  raw.client_ip = is_client ? raw.own_ip : raw.peer_ip;
  raw.server_port = is_client ? raw.peer_port : raw.own_port;
  raw.client_port = is_client ? raw.own_port : raw.peer_port;
}

void check_ip(const std::string& word, bool is_ipv6, const char* option) {
  if (!word.empty() && !read_ip(word, is_ipv6)) {
    throw std::invalid_argument(
        verbena::format("{}: '{}' is no IPv{} address", option, word, is_ipv6 ? 6 : 4));
  }
}

void check_headers(const RawSettings& raw) {
  check_ip(raw.server_ip, raw.is_ipv6, "-J");
  check_ip(raw.client_ip, raw.is_ipv6, "-j");
  const bool has_ip = !raw.server_ip.empty() && !raw.client_ip.empty();
  require((raw.server_port != 0) == (raw.client_port != 0), "-K, -k: a UDP or TCP header needs both ports");
  require(raw.server_port == 0 || has_ip, "-K, -k: a UDP or TCP header needs both IP addresses (-J, -j)");
  require(!raw.is_tcp || raw.server_port != 0, "--tcp: a TCP header needs both ports (-K, -k)");
  require(raw.flow_label == 0 || raw.is_ipv6, "--flow_label: only with --raw_ipv6");
}

void check_flows(const Parameters& p) {
  const RawSettings& raw = *p.raw;
  require(raw.flows == 1 || raw.server_port != 0, "--flows: flows differ by their ports (-K, -k)");
  require(raw.flows == 1 || !p.is_bidirectional, "--flows: not with -b");
  require(raw.flow_burst == 1 || raw.flows > 1, "--flows_burst: only with --flows");
  require(raw.server_port + raw.flows <= 65536 && raw.client_port + raw.flows <= 65536,
          "--flows: the ports of the last flow exceed 65535");
  require(p.is_timed() || raw.flows == 1 || p.iterations >= std::uint64_t{raw.flows} * raw.flow_burst,
          "-n: fewer messages than --flows times --flows_burst");
  require(std::uint64_t{raw.flows} * raw.flow_burst * kVlanPriorities <= kMaxFrames,
          "--flows, --flows_burst: together at most 131072 frames");
}

// Options of the other tests that mean nothing without a connection.
void check_general_options(const Parameters& p) {
  require(p.transport == verbena::transport::raw_packet, "-c: raw Ethernet has no connection");
  require(!p.uses_cm && !p.exchanges_by_cm, "-R, -z: raw Ethernet has no connection");
  require(!p.gid_index && !p.wants_ipv6,
          "-x, --ipv6: frames have no GID; --raw_ipv6 gives them an IPv6 header");
  require(p.mapped_file.empty(), "--mmap: not for raw Ethernet");
  require(!p.uses_srq, "--use-srq: queue pairs for raw Ethernet have receives of their own");
  require(p.service_level == 0, "-S: frames have their priority in a VLAN tag (--vlan_pcp)");
  require(p.extent != Extent::kAllSizes, "-a: not for raw Ethernet");
  require(!p.sweep, "--sweep: the ends of raw Ethernet tests have no exchange that orders tests");
  require(!p.verifies, "--verify: only over RC");
}

// Each frame stays where it came until it is sent.
void settle_forwarding(Parameters& p) {
  require(!p.sleeps, "-e: not with --mac_fwd, which polls");
  require(!p.is_endless(), "--run_infinitely: not with --mac_fwd");
  require(!p.raw->is_multicast && p.list_length == 1 && p.receive_list_length == 1 && p.rate_limit == 0,
          "--mac_fwd: not with --raw_mcast, -l, --recv_post_list or --rate_limit");
  if (!p.is_timed())
    p.receive_depth = static_cast<std::uint32_t>(std::min<std::uint64_t>(p.receive_depth, p.iterations));
  p.receive_depth += p.receive_depth % 2;
  p.send_depth = p.receive_depth;
  p.moderation = 1;
  p.has_moderation = true;
  p.has_peak = false;
  p.is_bidirectional = true;
}

void check_bursts(const Parameters& p) {
  require(!p.is_timed(), "-D: not for raw_ethernet_burst_lat");
  require(!p.sleeps, "-e: raw_ethernet_burst_lat polls");
  require(p.iterations / p.raw->reply_every >= kLeastAnswers,
          "--reply_every: too large for -n; at least five frames must be answered");
}

void settle_pacing(Parameters& p) {
  constexpr double kKilobitsOfMebibyte = 8 * 1024;  // as perftest converts
  require(p.rate_limit > 0 && p.rate_unit == RateUnit::kMebibytes,
          "--rate_limit_type=PP: needs --rate_limit, and --rate_units=M");
  const double rate = p.rate_limit * kKilobitsOfMebibyte;
  require(rate >= 1 && rate < 4294967296, "--rate_limit: from 0.001 to 524287 MiB/s with PP");
  p.raw->pacing = static_cast<std::uint32_t>(rate);
  p.rate_limit = 0;  // this program sends as fast as it can
}

}  // namespace

std::uint32_t RawSettings::frames() const {
  return flows * flow_burst * (vlan_priority == kVaryingPriority ? kVlanPriorities : 1);
}

void settle_raw(Parameters& p) {
  RawSettings& raw = *p.raw;
  check_general_options(p);
  require(raw.is_client.has_value(), "the side is missing: --server or --client");
  if (p.is_reversed) raw.is_client = !*raw.is_client;
  p.is_reversed = false;
  take_own_names(raw);
  check_headers(raw);
  require(raw.own_mac.has_value(), "-B: the MAC address of this end is missing");
  require(!raw.is_multicast || !p.is_bidirectional, "--raw_mcast: not with -b");
  require(!raw.is_multicast || (!raw.is_ipv6 && !raw.server_ip.empty()),
          "--raw_mcast: needs the group's IPv4 address (-J)");
  const bool sends = *raw.is_client || p.is_latency() || p.is_bidirectional;
  require(raw.peer_mac || raw.is_multicast || raw.forwards || !sends,
          "-E: the MAC address of the peer is missing");
  if (raw.forwards) settle_forwarding(p);
  check_flows(p);
  if (p.is_burst_latency()) check_bursts(p);
  if (raw.is_paced) settle_pacing(p);
  require(p.list_length == 1 || raw.flows == 1, "-l: not with --flows");
}

namespace {

// The MAC address of an IPv4 multicast group (RFC 1112, 6.4).
MacAddress multicast_mac(const IpAddress& group) {
  return {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(group.bytes[1] & 0x7f), group.bytes[2], group.bytes[3]};
}

// The fields of a frame from the client to the server.
FrameFields frame_to_server(const Parameters& p, std::uint32_t flow) {
  const RawSettings& raw = *p.raw;
  FrameFields fields;
  fields.ether_type = raw.ether_type;
  fields.source = *raw.own_mac;
  fields.destination = raw.peer_mac.value_or(MacAddress{});
  if (!p.is_client()) std::swap(fields.source, fields.destination);
  if (!raw.server_ip.empty() || !raw.client_ip.empty()) {
    const IpAddress none{.is_ipv6 = raw.is_ipv6};
    fields.ip = IpFields{.source = read_ip(raw.client_ip, raw.is_ipv6).value_or(none),
                         .destination = read_ip(raw.server_ip, raw.is_ipv6).value_or(none),
                         .hop_limit = raw.hop_limit,
                         .traffic_class = p.type_of_service,
                         .flow_label = raw.flow_label};
  }
  if (raw.is_multicast) fields.destination = multicast_mac(fields.ip->destination);
  if (raw.server_port != 0) {
    fields.ports = PortFields{.source = static_cast<std::uint16_t>(raw.client_port + flow),
                              .destination = static_cast<std::uint16_t>(raw.server_port + flow),
                              .is_tcp = raw.is_tcp};
  }
  return fields;
}

}  // namespace

FrameFields sent_frame(const Parameters& p, std::uint32_t number) {
  const RawSettings& raw = *p.raw;
  const FrameFields to_server = frame_to_server(p, number / raw.flow_burst % raw.flows);
  FrameFields fields = p.is_client() ? to_server : reversed(to_server);
  if (raw.vlan_priority) {
    fields.vlan_priority = *raw.vlan_priority == RawSettings::kVaryingPriority
                               ? static_cast<std::uint8_t>(number % kVlanPriorities)
                               : *raw.vlan_priority;
  }
  return fields;
}

FrameFields received_frame(const Parameters& p, std::uint32_t flow) {
  const FrameFields to_server = frame_to_server(p, flow);
  return p.is_client() ? reversed(to_server) : to_server;
}

}  // namespace verbena::perf
