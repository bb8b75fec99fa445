// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// The RDMA IP CM service (IBTA volume 1, annex A11): IP ports as service IDs, and the addresses of both ends
// at the beginning of the private data of a REQ or SIDR_REQ.

// As in enum rdma_port_space: 0x0100 plus the IP protocol for the annex's own, and librdmacm's additional
// ones.
enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

// 0x0000000001PPpppp: PP is the IP protocol, pppp the port.
constexpr uint64_t service_id(PortSpace space, uint16_t port) {
  return static_cast<uint64_t>(space) << 16 | port;
}

struct IpService {
  PortSpace space;
  uint16_t port;  // host order
};
// Parses a service ID; EINVAL if it is not of this service.
Result<IpService> parse_service_id(uint64_t service_id);

// The header at the beginning of the private data (A11.4.1). Addresses are in GID form, IPv4 mapped.
struct IpHeader {
  static constexpr size_t kBytes = 36;
  uint8_t major_version = 0;
  uint8_t minor_version = 0;
  uint16_t source_port = 0;  // host order
  roce::Address source;
  roce::Address destination;

  bool is_ipv4() const { return destination.is_ipv4(); }
  friend bool operator==(const IpHeader&, const IpHeader&) = default;
};

// EINVAL: other major version, neither IPv4 nor IPv6, or too short.
Result<IpHeader> decode_ip_header(ConstBytes private_data);
// REQUIRES: both addresses of one family
std::array<uint8_t, IpHeader::kBytes> encode_ip_header(const IpHeader& header);

// Private data left to the application.
inline constexpr size_t kIpReqPrivateBytes = 92 - IpHeader::kBytes;
inline constexpr size_t kIpSidrReqPrivateBytes = 216 - IpHeader::kBytes;
static_assert(kIpReqPrivateBytes == 56 && kIpSidrReqPrivateBytes == 180);

}  // namespace verbena::cm
