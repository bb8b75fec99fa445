// SPDX-License-Identifier: Apache-2.0
// Address handles, including those derived from a received datagram.
#include <netinet/in.h>
#include <netinet/ip.h>

#include "base/bytes.h"
#include "libraries/libibverbs/abi.h"

namespace {

using namespace verbena::verbs;
using verbena::fail;
using verbena::load_be;
using verbena::Result;

constexpr size_t kIpv4OffsetInGrh = 20;  // RoCEv2, annex A17: an IPv4 header fills the last 20 bytes
constexpr uint8_t kNextHeaderIb = 0x1b;  // RoCEv1: the GRH's own next-header value

uint32_t version_class_flow(const ibv_grh& grh) {
  return load_be<uint32_t>(&grh.version_tclass_flow);
}

iphdr ipv4_header(const ibv_grh& grh) {
  iphdr header;
  std::memcpy(&header, reinterpret_cast<const std::byte*>(&grh) + kIpv4OffsetInGrh, sizeof header);
  return header;
}

// RFC 1071: the one's complement sum over a header that includes its checksum is all ones.
bool checksum_is_right(const iphdr& header) {
  uint16_t words[sizeof header / 2];
  std::memcpy(words, &header, sizeof header);
  uint32_t sum = 0;
  for (const uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

enum class IpVersion { kNone, k4, k6 };

// Returns the IP version of the header in a GRH. For IPv4 the first 20 bytes are undefined and may look like
// IPv6. For IPv6 the last 20 bytes are the end of the source GID and the destination GID, and may look like
// IPv4. The IPv4 checksum decides.
IpVersion ip_version(const ibv_grh& grh) {
  const iphdr ipv4 = ipv4_header(grh);
  if (version_class_flow(grh) >> 28 != 6) return ipv4.version == 4 ? IpVersion::k4 : IpVersion::kNone;
  const bool is_ipv4 = ipv4.ihl == 5 && checksum_is_right(ipv4);
  return is_ipv4 ? IpVersion::k4 : IpVersion::k6;
}

ibv_gid mapped_gid(uint32_t ipv4_in_network_order) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(&gid.raw[12], &ipv4_in_network_order, sizeof ipv4_in_network_order);
  return gid;
}

// Returns the first index with this GID and this type; EINVAL if there is none, or the error of a query.
// Searches 256 indices: an address handle has 8 bits for the index.
Result<uint8_t> find_gid(ibv_context* context, uint8_t port, const ibv_gid& wanted,
                         GidSysfsType wanted_type) {
  ibv_gid gid;
  GidSysfsType type;
  for (int index = 0; index <= UINT8_MAX; ++index) {
    if (ibv_query_gid(context, port, index, &gid) != 0) return fail(errno);
    if (std::memcmp(&gid, &wanted, sizeof gid) != 0) continue;
    if (ibv_query_gid_type(context, port, static_cast<unsigned>(index), &type) != 0) return fail(errno);
    if (type == wanted_type) return static_cast<uint8_t>(index);
  }
  return fail(EINVAL);
}

// Fill the route to the sender of a datagram. Return 0 or an errno value; EINVAL for a datagram to a
// multicast address, which no GID table holds.
int fill_route_from_ipv4(const ibv_grh& grh, ibv_context* context, ibv_ah_attr& attr) {
  const iphdr header = ipv4_header(grh);
  if (IN_CLASSD(ntohl(header.daddr))) return EINVAL;
  const auto index = find_gid(context, attr.port_num, mapped_gid(header.daddr), GidSysfsType::kRoceV2);
  if (!index) return index.error().code;
  attr.grh.dgid = mapped_gid(header.saddr);
  attr.grh.sgid_index = *index;
  attr.grh.hop_limit = header.ttl;
  attr.grh.traffic_class = header.tos;
  return 0;
}

int fill_route_from_ipv6(const ibv_grh& grh, ibv_context* context, ibv_ah_attr& attr) {
  if (grh.dgid.raw[0] == 0xff) return EINVAL;
  if (grh.next_hdr != IPPROTO_UDP && grh.next_hdr != kNextHeaderIb) return EPROTONOSUPPORT;
  const auto type = grh.next_hdr == IPPROTO_UDP ? GidSysfsType::kRoceV2 : GidSysfsType::kIbOrRoceV1;
  const auto index = find_gid(context, attr.port_num, grh.dgid, type);
  if (!index) return index.error().code;
  attr.grh.dgid = grh.sgid;
  attr.grh.sgid_index = *index;
  attr.grh.hop_limit = grh.hop_limit;
  attr.grh.traffic_class = static_cast<uint8_t>(version_class_flow(grh) >> 20);
  return 0;
}

}  // namespace

VERBENA_ABI ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return call(pd, {"attr", attr}, [&](auto& provider) { return provider.create_ah(pd, attr); });
}

VERBENA_ABI int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                    ibv_ah_attr* attr) {
  *attr = {};
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;

  attr->is_global = 1;
  attr->grh.flow_label = version_class_flow(*grh) & 0xfffff;
  const IpVersion version = ip_version(*grh);
  const int code = version == IpVersion::k4   ? fill_route_from_ipv4(*grh, context, *attr)
                   : version == IpVersion::k6 ? fill_route_from_ipv6(*grh, context, *attr)
                                              : EPROTONOSUPPORT;
  if (code != 0) errno = code;
  return code == 0 ? 0 : -1;
}

VERBENA_ABI ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  if (owner(pd) == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

VERBENA_FORWARD(int, ibv_destroy_ah, (ibv_ah * ah), destroy, ah, destroy_ah(ah))
