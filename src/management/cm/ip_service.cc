// SPDX-License-Identifier: Apache-2.0
#include "management/cm/ip_service.h"

#include <algorithm>

namespace verbena::cm {
namespace {

// Offsets in the header (annex A11, figure 4). Address fields have 16 bytes; IPv4 uses the last four.
constexpr size_t kVersionsAt = 0;  // major and minor version, a nibble each
constexpr size_t kFamilyAt = 1;    // IP version in the high nibble
constexpr size_t kPortAt = 2;
constexpr size_t kSourceAt = 4;
constexpr size_t kDestinationAt = 20;
constexpr size_t kAddressBytes = 16;
constexpr size_t kIpv4At = 12;

roce::Address decode_address(const std::byte* from, bool ipv4) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  if (ipv4) return roce::Address::from_ipv4(bytes + kIpv4At);
  roce::Address address;
  std::copy_n(bytes, kAddressBytes, address.bytes.begin());
  return address;
}

void encode_address(const roce::Address& address, bool ipv4, uint8_t* to) {
  if (ipv4) {
    std::copy_n(address.ipv4(), 4, to + kIpv4At);
  } else {
    std::copy_n(address.bytes.begin(), kAddressBytes, to);
  }
}

}  // namespace

Result<IpService> parse_service_id(uint64_t service_id) {
  for (const PortSpace space : {PortSpace::kIpoib, PortSpace::kTcp, PortSpace::kUdp, PortSpace::kIb}) {
    const auto port = static_cast<uint16_t>(service_id);
    if (service_id == cm::service_id(space, port)) return IpService{space, port};
  }
  return fail(EINVAL);
}

Result<IpHeader> decode_ip_header(ConstBytes private_data) {
  if (private_data.size() < IpHeader::kBytes) return fail(EINVAL);
  const std::byte* const from = private_data.data();
  const auto versions = static_cast<uint8_t>(from[kVersionsAt]);
  const int family = static_cast<uint8_t>(from[kFamilyAt]) >> 4;
  if (versions >> 4 != 0 || (family != 4 && family != 6)) return fail(EINVAL);
  IpHeader header;
  header.minor_version = versions & 0x0f;
  header.source_port = load_be<uint16_t>(from + kPortAt);
  header.source = decode_address(from + kSourceAt, family == 4);
  header.destination = decode_address(from + kDestinationAt, family == 4);
  return header;
}

std::array<uint8_t, IpHeader::kBytes> encode_ip_header(const IpHeader& header) {
  std::array<uint8_t, IpHeader::kBytes> bytes{};
  const bool ipv4 = header.is_ipv4();
  bytes[kVersionsAt] = static_cast<uint8_t>(header.major_version << 4 | header.minor_version);
  bytes[kFamilyAt] = ipv4 ? 0x40 : 0x60;
  store_be(&bytes[kPortAt], header.source_port);
  encode_address(header.source, ipv4, &bytes[kSourceAt]);
  encode_address(header.destination, ipv4, &bytes[kDestinationAt]);
  return bytes;
}

}  // namespace verbena::cm
