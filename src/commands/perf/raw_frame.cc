// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_frame.h"

#include <cctype>
#include <cstring>
#include <utility>

#include <arpa/inet.h>

#include "base/format.h"
#include "wire/ethernet/offloads.h"
#include "wire/ethernet/steering.h"

namespace verbena::perf {
namespace {

constexpr std::uint16_t kVlanNumber = 1;     // perftest's
constexpr std::uint8_t kNoNextHeader = 59;   // RFC 8200, 4.7
constexpr std::uint16_t kTcpWindow = 8192;   // perftest's
constexpr std::uint8_t kTcpHeaderWords = 5;  // RFC 9293, 3.1
constexpr std::uint8_t kIpv4WithoutOptions = 0x45;

// Writes fields one after the other.
class Writer {
 public:
  explicit Writer(Bytes to) : rest_(to) {}

  template <class T>
  void number(T value) {
    if constexpr (sizeof(T) == 1) {
      rest_[0] = static_cast<std::byte>(value);
    } else {
      store_be(rest_.data(), value);
    }
    rest_ = rest_.subspan(sizeof(T));
  }
  void bytes(const std::uint8_t* from, std::size_t count) {
    std::memcpy(rest_.data(), from, count);
    rest_ = rest_.subspan(count);
  }
  std::size_t left() const { return rest_.size(); }

 private:
  Bytes rest_;
};

std::uint8_t protocol_of(const FrameFields& fields) {
  if (!fields.ports) return fields.ip->source.is_ipv6 ? kNoNextHeader : 0;
  return fields.ports->is_tcp ? ethernet::kProtocolTcp : ethernet::kProtocolUdp;
}

void write_ethernet(Writer& to, const FrameFields& fields) {
  to.bytes(fields.destination.data(), fields.destination.size());
  to.bytes(fields.source.data(), fields.source.size());
  if (fields.vlan_priority) {
    to.number(ethernet::kTypeVlan);
    to.number(static_cast<std::uint16_t>(*fields.vlan_priority << 13 | kVlanNumber));
  }
  std::uint16_t type = static_cast<std::uint16_t>(to.left() - sizeof type);
  if (fields.ip) type = fields.ip->source.is_ipv6 ? ethernet::kTypeIpv6 : ethernet::kTypeIpv4;
  to.number(type);
}

void write_ipv4(Writer& to, const FrameFields& fields) {
  const IpFields& ip = *fields.ip;
  const auto total = static_cast<std::uint16_t>(to.left());
  to.number(kIpv4WithoutOptions);
  to.number(ip.traffic_class.value_or(0));
  to.number(total);
  to.number(std::uint32_t{0});  // identification, flags and fragment offset: the datagram is whole
  to.number(ip.hop_limit);
  to.number(protocol_of(fields));
  to.number(std::uint16_t{0});  // the checksum comes last
  to.bytes(ip.source.bytes.data(), 4);
  to.bytes(ip.destination.bytes.data(), 4);
}

void write_ipv6(Writer& to, const FrameFields& fields) {
  const IpFields& ip = *fields.ip;
  to.number(6U << 28 | std::uint32_t{ip.traffic_class.value_or(0)} << 20 | ip.flow_label);
  to.number(static_cast<std::uint16_t>(to.left() + sizeof(std::uint32_t) - ethernet::kIpv6HeaderBytes));
  to.number(protocol_of(fields));
  to.number(ip.hop_limit);
  to.bytes(ip.source.bytes.data(), ip.source.bytes.size());
  to.bytes(ip.destination.bytes.data(), ip.destination.bytes.size());
}

void write_ports(Writer& to, const PortFields& ports) {
  const auto length = static_cast<std::uint16_t>(to.left());
  to.number(ports.source);
  to.number(ports.destination);
  if (!ports.is_tcp) {
    to.number(length);
    to.number(std::uint16_t{0});  // the checksum comes last
    return;
  }
  to.number(std::uint64_t{0});  // sequence and acknowledgement number
  to.number(static_cast<std::uint16_t>(kTcpHeaderWords << 12));
  to.number(kTcpWindow);
  to.number(std::uint32_t{0});  // the checksum comes last; no urgent data
}

}  // namespace

std::optional<MacAddress> read_mac(const std::string& word) {
  constexpr std::size_t kLength = 17, kEach = 3;  // two digits and a colon, except behind the last
  if (word.size() != kLength) return std::nullopt;
  MacAddress read{};
  for (std::size_t i = 0; i < kLength; ++i) {
    const auto letter = static_cast<unsigned char>(word[i]);
    if (i % kEach == 2 ? letter != ':' : std::isxdigit(letter) == 0) return std::nullopt;
    if (i % kEach == 0)
      read[i / kEach] = static_cast<std::uint8_t>(std::stoul(word.substr(i, 2), nullptr, 16));
  }
  return read;
}

std::optional<IpAddress> read_ip(const std::string& word, bool is_ipv6) {
  IpAddress read{.is_ipv6 = is_ipv6};
  if (::inet_pton(is_ipv6 ? AF_INET6 : AF_INET, word.c_str(), read.bytes.data()) != 1) return std::nullopt;
  return read;
}

std::string text_of(const MacAddress& a) {
  return verbena::format("{:02X}:{:02X}:{:02X}:{:02X}:{:02X}:{:02X}", a[0], a[1], a[2], a[3], a[4], a[5]);
}

std::string text_of(const IpAddress& address) {
  char text[INET6_ADDRSTRLEN]{};
  ::inet_ntop(address.is_ipv6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
  return text;
}

FrameFields reversed(const FrameFields& fields) {
  FrameFields answer = fields;
  std::swap(answer.source, answer.destination);
  if (answer.ip) std::swap(answer.ip->source, answer.ip->destination);
  if (answer.ports) std::swap(answer.ports->source, answer.ports->destination);
  return answer;
}

std::size_t header_bytes(const FrameFields& fields) {
  std::size_t bytes = ethernet::kHeaderBytes + (fields.vlan_priority ? ethernet::kVlanTagBytes : 0);
  if (fields.ip) bytes += fields.ip->source.is_ipv6 ? ethernet::kIpv6HeaderBytes : ethernet::kIpv4HeaderBytes;
  if (fields.ports) bytes += fields.ports->is_tcp ? ethernet::kTcpHeaderBytes : ethernet::kUdpHeaderBytes;
  return bytes;
}

void write_headers(Bytes frame, const FrameFields& fields) {
  Writer to(frame);
  write_ethernet(to, fields);
  const std::size_t end_of_type = frame.size() - to.left();
  if (fields.ip) {
    fields.ip->source.is_ipv6 ? write_ipv6(to, fields) : write_ipv4(to, fields);
    if (fields.ports) write_ports(to, *fields.ports);
    if (const auto headers = ethernet::parse_headers(frame)) ethernet::fill_checksums(frame, *headers);
  }
  // The checksums are those that the frame has with its own EtherType.
  if (fields.ether_type) store_be(frame.data() + end_of_type - sizeof(std::uint16_t), *fields.ether_type);
}

}  // namespace verbena::perf
