// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_report.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "wire/ethernet/steering.h"

namespace verbena::perf {
namespace {

const char* name_of_type(const FrameFields& fields) {
  if (!fields.ip || fields.ether_type) return "DEFAULT";
  return fields.ip->source.is_ipv6 ? "IPv6" : "IPv4";
}

// A table of names and values, as wide as perftest's of this header.
class Table {
 public:
  Table(const char* title, int name_width, int value_width)
      : line_(std::string("|") + std::string(static_cast<std::size_t>(name_width + value_width + 1), '-') +
              "|"),
        name_width_(name_width),
        value_width_(value_width) {
    std::printf("%s\n%s\n", title, line_.c_str());
  }
  void row(const char* name, const std::string& value) const {
    std::printf("|%-*s|%-*s|\n", name_width_, name, value_width_, value.c_str());
  }
  void row(const char* name, unsigned value) const { row(name, std::to_string(value)); }
  void end(const char* behind) const { std::printf("%s\n%s", line_.c_str(), behind); }

 private:
  const std::string line_;
  const int name_width_;
  const int value_width_;
};

void print_ethernet(ConstBytes frame, const FrameFields& fields) {
  const std::string to = text_of(fields.destination), from = text_of(fields.source);
  std::printf("**raw ethernet header****************************************\n\n");
  if (fields.vlan_priority) {
    std::printf(
        "----------------------------------------------------------------------------\n"
        "| Dest MAC         | Src MAC          |    vlan tag    |   Packet Type     |\n"
        "|--------------------------------------------------------------------------|\n"
        "| %s| %s|   0x%08x   |%-19s|\n"
        "|--------------------------------------------------------------------------|\n\n",
        to.c_str(), from.c_str(), load_be<std::uint32_t>(frame.data() + 2 * sizeof(MacAddress)),
        name_of_type(fields));
    return;
  }
  std::printf(
      "--------------------------------------------------------------\n"
      "| Dest MAC         | Src MAC          | Packet Type          |\n"
      "|------------------------------------------------------------|\n"
      "| %s| %s|%-22s|\n"
      "|------------------------------------------------------------|\n\n",
      to.c_str(), from.c_str(), name_of_type(fields));
}

std::string name_of_protocol(const FrameFields& fields) {
  if (!fields.ports) return "EMPTY";
  return fields.ports->is_tcp ? "TCP" : "UDP";
}

std::string hexadecimal(unsigned value) {
  char text[9];
  std::snprintf(text, sizeof text, "%X", value);
  return text;
}

void print_ipv4(const std::byte* header, const FrameFields& fields) {
  const Table table("**IP header**************", 10, 12);
  table.row("Version", 4);
  table.row("Ihl", ethernet::kIpv4HeaderBytes / 4);
  table.row("TOS", fields.ip->traffic_class.value_or(0));
  table.row("TOT LEN", load_be<std::uint16_t>(header + 2));
  table.row("ID", 0);
  table.row("Frag", 0);
  table.row("TTL", fields.ip->hop_limit);
  table.row("protocol", name_of_protocol(fields));
  table.row("Check sum", hexadecimal(load_be<std::uint16_t>(header + 10)));
  table.row("Source IP", text_of(fields.ip->source));
  table.row("Dest IP", text_of(fields.ip->destination));
  table.end("\n");
}

void print_ipv6(const FrameFields& fields) {
  const Table table("***************IPv6 header*************", 10, 26);
  table.row("Version", 6);
  table.row("Hop Limit", fields.ip->hop_limit);
  table.row("protocol", name_of_protocol(fields));
  table.row("Source IP", text_of(fields.ip->source));
  table.row("Dest IP", text_of(fields.ip->destination));
  table.end("\n");
}

void print_ports(const std::byte* header, const PortFields& ports) {
  const Table table(ports.is_tcp ? "**TCP header***********" : "**UDP header***********", 10, 10);
  table.row("Src  Port", ports.source);
  table.row("Dest Port", ports.destination);
  if (ports.is_tcp) {
    table.row("offset", load_be<std::uint16_t>(header + 12) >> 12);
    table.row("window", load_be<std::uint16_t>(header + 14));
  } else {
    table.row("Len", load_be<std::uint16_t>(header + 4));
    table.row("check sum", load_be<std::uint16_t>(header + 6));
  }
  table.end("");
}

}  // namespace

void print_frame(ConstBytes frame, const FrameFields& fields) {
  print_ethernet(frame, fields);
  if (!fields.ip) return;
  const std::byte* const ip =
      frame.data() + ethernet::kHeaderBytes + (fields.vlan_priority ? ethernet::kVlanTagBytes : 0);
  fields.ip->source.is_ipv6 ? print_ipv6(fields) : print_ipv4(ip, fields);
  if (!fields.ports) return;
  print_ports(ip + (fields.ip->source.is_ipv6 ? ethernet::kIpv6HeaderBytes : ethernet::kIpv4HeaderBytes),
              *fields.ports);
}

void print_flow(const FrameFields& fields) {
  std::printf("MAC attached  : %s\n", text_of(fields.destination).c_str());
  if (fields.ip) {
    std::printf("spec_info - dst_ip   : %s\n", text_of(fields.ip->destination).c_str());
    std::printf("spec_info - src_ip   : %s\n", text_of(fields.ip->source).c_str());
  }
  if (fields.ports) {
    std::printf("spec_info - dst_port : %u\n", unsigned{fields.ports->destination});
    std::printf("spec_info - src_port : %u\n", unsigned{fields.ports->source});
  }
}

}  // namespace verbena::perf
