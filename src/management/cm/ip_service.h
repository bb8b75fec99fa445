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

// Port spaces, with the values of enum rdma_port_space. kTcp and kUdp are the annex's: 0x0100 plus the IP
// protocol. kIpoib and kIb are librdmacm's.
enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

// Returns the service ID of a port: the port space and the port. The annex's form is 0x0000000001PPpppp: PP
// is the IP protocol, pppp the port.
constexpr uint64_t service_id(PortSpace space, uint16_t port) {
  return static_cast<uint64_t>(space) << 16 | port;
}

struct IpService {
  PortSpace space;
  uint16_t port;  // host order
};
// Parses a service ID. EINVAL if it is of none of these port spaces.
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

// Decodes the header. EINVAL if the private data is too short, the major version is not 0, or the addresses
// are neither IPv4 nor IPv6.
Result<IpHeader> decode_ip_header(ConstBytes private_data);
// Encodes the header. REQUIRES: both addresses are of one family
std::array<uint8_t, IpHeader::kBytes> encode_ip_header(const IpHeader& header);

// The bytes of private data that the header leaves to the application.
inline constexpr size_t kIpReqPrivateBytes = 92 - IpHeader::kBytes;
inline constexpr size_t kIpSidrReqPrivateBytes = 216 - IpHeader::kBytes;
static_assert(kIpReqPrivateBytes == 56 && kIpSidrReqPrivateBytes == 180);

}  // namespace verbena::cm
