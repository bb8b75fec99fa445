// SPDX-License-Identifier: Apache-2.0
#include "network/too_large.h"

#include <algorithm>

#include "wire/ethernet/offloads.h"

namespace verbena::network {
namespace {

using ethernet::kHeaderBytes;
using ethernet::kIpv4HeaderBytes;
using ethernet::kIpv6HeaderBytes;

constexpr uint32_t kIcmpHeaderBytes = 8;
constexpr uint32_t kQuotedBytes = 512;  // bytes quoted of the packet; RFC 1812, 4.3.2.3 allows a total of 576
constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kProtocolIcmpv6 = 58;

struct Kind {
  uint32_t ip_bytes;
  uint8_t icmp_type;
  uint8_t icmp_code;
};
constexpr Kind kIpv4Kind{kIpv4HeaderBytes, 3, 4};
constexpr Kind kIpv6Kind{kIpv6HeaderBytes, 2, 0};

void put(std::byte* to, uint8_t value) {
  *to = std::byte{value};
}

void put_checksum(std::byte* at, uint64_t sum) {
  store_be<uint16_t>(at, static_cast<uint16_t>(~ethernet::folded(sum)));
}

// REQUIRES: `ip` is zeroed, its ICMP part complete but for the checksum
void put_ipv4(std::byte* ip, const std::byte* quoted, uint32_t icmp_bytes) {
  put(ip, 0x45);
  store_be<uint16_t>(ip + 2, static_cast<uint16_t>(kIpv4HeaderBytes + icmp_bytes));
  put(ip + 8, kHopLimit);
  put(ip + 9, kProtocolIcmp);
  std::copy_n(quoted + 16, 4, ip + 12);
  std::copy_n(quoted + 12, 4, ip + 16);
  put_checksum(ip + 10, ethernet::sum_words({ip, kIpv4HeaderBytes}));
  put_checksum(ip + kIpv4HeaderBytes + 2, ethernet::sum_words({ip + kIpv4HeaderBytes, icmp_bytes}));
}

void put_ipv6(std::byte* ip, const std::byte* quoted, uint32_t icmp_bytes) {
  put(ip, 0x60);
  store_be<uint16_t>(ip + 4, static_cast<uint16_t>(icmp_bytes));
  put(ip + 6, kProtocolIcmpv6);
  put(ip + 7, kHopLimit);
  std::copy_n(quoted + 24, 16, ip + 8);
  std::copy_n(quoted + 8, 16, ip + 24);
  // The pseudo header: addresses, length, next header (RFC 8200, 8.1).
  const uint64_t pseudo = ethernet::sum_words({ip + 8, 32}, uint64_t{icmp_bytes} + kProtocolIcmpv6);
  put_checksum(ip + kIpv6HeaderBytes + 2, ethernet::sum_words({ip + kIpv6HeaderBytes, icmp_bytes}, pseudo));
}

}  // namespace

std::vector<std::byte> too_large_answer(const SuperFrame& frame, uint32_t mtu) {
  if (!frame.is_ip() || frame.headers().key.is_multicast()) return {};
  const bool ipv4 = frame.headers().key.has(ethernet::kIpv4);
  const Kind& kind = ipv4 ? kIpv4Kind : kIpv6Kind;
  // The headers of the first segment only.
  const SuperFrame::Run first = frame.run(0, 1, false);
  std::vector<std::byte> packet(first.headers().begin() + frame.headers().network_offset,
                                first.headers().end());
  const size_t more = kQuotedBytes - std::min<size_t>(kQuotedBytes, packet.size());
  packet.insert(packet.end(), first.payload.begin(),
                first.payload.begin() + static_cast<ptrdiff_t>(std::min(first.payload.size(), more)));

  std::vector<std::byte> answer(kHeaderBytes + kind.ip_bytes + kIcmpHeaderBytes + packet.size());
  const ConstBytes ethernet = frame.bytes().first(kHeaderBytes);
  std::copy_n(ethernet.begin() + 6, 6, answer.begin());
  std::copy_n(ethernet.begin(), 6, answer.begin() + 6);
  store_be<uint16_t>(answer.data() + 12, ipv4 ? ethernet::kTypeIpv4 : ethernet::kTypeIpv6);

  std::byte* const ip = answer.data() + kHeaderBytes;
  std::byte* const icmp = ip + kind.ip_bytes;
  put(icmp, kind.icmp_type);
  put(icmp + 1, kind.icmp_code);
  store_be<uint32_t>(icmp + 4, mtu);  // in IPv4 its upper half is unused, and zero
  std::ranges::copy(packet, icmp + kIcmpHeaderBytes);
  const auto icmp_bytes = static_cast<uint32_t>(kIcmpHeaderBytes + packet.size());
  (ipv4 ? put_ipv4 : put_ipv6)(ip, packet.data(), icmp_bytes);
  return answer;
}

}  // namespace verbena::network
