// SPDX-License-Identifier: Apache-2.0
// The options of tests for raw Ethernet.
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "commands/perf/option_row.h"

namespace verbena::perf {
namespace {

MacAddress mac(const char* option, const char* value) {
  const auto read = read_mac(value);
  if (!read) refuse(option, value, "a MAC address such as 02:00:00:00:00:01");
  return *read;
}

std::uint16_t port(const char* option, const char* value) {
  return number<std::uint16_t>(option, value, 1, 65535);
}

constexpr Word<bool> kRateTypes[] = {{"SW", false}, {"PP", true}};
constexpr long long kMaxFlowLabel = 0xfffff;

// In the order of the help.
constexpr Row kRows[] = {
    {'Z', "server", nullptr, "This end is the server: it receives", TAKE(p.raw->is_client = false)},
    {'P', "client", nullptr, "This end is the client: it sends", TAKE(p.raw->is_client = true)},
    {'B', "source_mac", "mac", "MAC address of this end", TAKE(p.raw->own_mac = mac("-B", value))},
    {'E', "dest_mac", "mac", "MAC address of the peer", TAKE(p.raw->peer_mac = mac("-E", value))},
    {'J', "dest_ip", "address", "IP address of the server, for frames with an IP header",
     TAKE(p.raw->server_ip = value)},
    {'j', "source_ip", "address", "IP address of the client", TAKE(p.raw->client_ip = value)},
    {'K', "dest_port", "port", "Port of the server, for frames with a UDP header",
     TAKE(p.raw->server_port = port("-K", value))},
    {'k', "source_port", "port", "Port of the client", TAKE(p.raw->client_port = port("-k", value))},
    {0, "local_mac", "mac", "As -B", TAKE(p.raw->own_mac = mac("--local_mac", value))},
    {0, "remote_mac", "mac", "As -E", TAKE(p.raw->peer_mac = mac("--remote_mac", value))},
    {0, "local_ip", "address", "IP address of this end", TAKE(p.raw->own_ip = value)},
    {0, "remote_ip", "address", "IP address of the peer", TAKE(p.raw->peer_ip = value)},
    {0, "local_port", "port", "Port of this end", TAKE(p.raw->own_port = port("--local_port", value))},
    {0, "remote_port", "port", "Port of the peer", TAKE(p.raw->peer_port = port("--remote_port", value))},
    {'L', "hop_limit", "limit", "TTL of IPv4 or hop limit of IPv6 (default 64)",
     TAKE(p.raw->hop_limit = number<std::uint8_t>("-L", value, 0, 255))},
    {'Y', "ethertype", "type", "EtherType, such as 0x88b5 (default: that of the IP header, or a length)",
     TAKE(p.raw->ether_type = number<std::uint16_t>("-Y", value, 0, 65535))},
    {0, "vlan_en", nullptr, "Put a VLAN tag into the frames",
     TAKE(if (!p.raw->vlan_priority) p.raw->vlan_priority = 1)},
    {0, "vlan_pcp", "priority", "Priority of the VLAN tag, 0 to 7; 8: another one in each frame (default 1)",
     TAKE(p.raw->vlan_priority =
              number<std::uint8_t>("--vlan_pcp", value, 0, RawSettings::kVaryingPriority))},
    {0, "tcp", nullptr, "A TCP header instead of UDP", TAKE(p.raw->is_tcp = true)},
    {0, "raw_ipv6", nullptr, "An IPv6 header instead of IPv4", TAKE(p.raw->is_ipv6 = true)},
    {0, "flow_label", "label", "Flow label of IPv6",
     TAKE(p.raw->flow_label = number<std::uint32_t>("--flow_label", value, 0, kMaxFlowLabel))},
    {0, "flows", "number", "Number of flows; the ports of each are one higher (default 1)",
     TAKE(p.raw->flows = number<std::uint32_t>("--flows", value, 1, 65535))},
    {0, "flows_burst", "number", "Frames of one flow that follow each other (default 1)",
     TAKE(p.raw->flow_burst = number<std::uint32_t>("--flows_burst", value, 1, 65535))},
    {0, "reply_every", "number",
     "raw_ethernet_burst_lat: the server answers every so many frames (default 1)",
     TAKE(only_for(p.is_burst_latency(), "--reply_every", "raw_ethernet_burst_lat"),
          p.raw->reply_every = number<std::uint32_t>("--reply_every", value, 1, 1000000))},
    {0, "rate_limit_type", "SW/PP", "The program (default) or the adapter limits the rate (packet pacing)",
     TAKE(p.raw->is_paced = one_of("--rate_limit_type", value, kRateTypes))},
    {0, "promiscuous", nullptr, "Receive all frames that no other flow rule takes, too",
     TAKE(p.raw->takes_all = true)},
    {0, "sniffer", nullptr, "Receive copies of all frames, too", TAKE(p.raw->sniffs = true)},
    {'v', "mac_fwd", nullptr, "Send each frame that comes back to its source",
     TAKE(only_for(!p.is_latency(), "-v", "bandwidth tests"), p.raw->forwards = true)},
    {0, "raw_mcast", nullptr, "Send to the multicast group of the server's IPv4 address",
     TAKE(only_for(!p.is_latency(), "--raw_mcast", "bandwidth tests"), p.raw->is_multicast = true)},
};

}  // namespace

std::span<const Row> raw_rows() {
  return kRows;
}

}  // namespace verbena::perf
