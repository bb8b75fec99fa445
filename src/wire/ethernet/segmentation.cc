// SPDX-License-Identifier: Apache-2.0
#include "wire/ethernet/segmentation.h"

#include <algorithm>

#include "wire/ethernet/checksum.h"

namespace verbena::ethernet {
namespace {

constexpr uint32_t kUdpHeaderBytes = 8;
constexpr uint32_t kTcpHeaderBytes = 20;
constexpr uint8_t kTcpFin = 0x01;
constexpr uint8_t kTcpPush = 0x08;
constexpr uint8_t kTcpWindowReduced = 0x80;

// The length of the TCP or UDP header; 0 if it is incomplete.
uint32_t transport_header_bytes(ConstBytes frame, const FrameHeaders& headers) {
  const size_t left = frame.size() - headers.transport_offset;
  if (headers.key.has(kUdp)) return left >= kUdpHeaderBytes ? kUdpHeaderBytes : 0;
  if (!headers.key.has(kTcp) || left < kTcpHeaderBytes) return 0;
  const auto offset = static_cast<uint8_t>(frame[headers.transport_offset + 12]);
  const uint32_t bytes = (offset >> 4) * 4u;
  return bytes >= kTcpHeaderBytes && bytes <= left ? bytes : 0;
}

void renumber_ip(uint8_t* network, bool ipv4, uint32_t bytes, uint32_t k) {
  if (!ipv4) {
    store_be<uint16_t>(network + 4, static_cast<uint16_t>(bytes - kIpv6HeaderBytes));
    return;
  }
  store_be<uint16_t>(network + 2, static_cast<uint16_t>(bytes));
  store_be<uint16_t>(network + 4, static_cast<uint16_t>(load_be<uint16_t>(network + 4) + k));
}

}  // namespace

Segmentation::Segmentation(ConstBytes frame, uint32_t payload_bytes)
    : frame_(frame), payload_bytes_(payload_bytes) {
  const auto headers = parse_headers(frame);
  if (!headers || payload_bytes == 0) return;
  headers_ = *headers;
  if ((headers_.key.fragment & kMoreFragments) != 0) return;
  const uint32_t transport_bytes = transport_header_bytes(frame, headers_);
  if (transport_bytes == 0) return;
  header_bytes_ = headers_.transport_offset + transport_bytes;
  const auto payload = static_cast<uint32_t>(frame.size()) - header_bytes_;
  // A segment's length must fit into the length field of its IP header.
  if (header_bytes_ + uint64_t{payload_bytes} > 0xffff) return;
  count_ = std::max(1u, (payload + payload_bytes - 1) / payload_bytes);
}

uint32_t Segmentation::segment(uint32_t k, std::byte* to) const {
  const uint32_t from = header_bytes_ + k * payload_bytes_;
  const uint32_t payload = std::min(payload_bytes_, static_cast<uint32_t>(frame_.size()) - from);
  const uint32_t bytes = header_bytes_ + payload;
  std::memcpy(to, frame_.data(), header_bytes_);
  std::memcpy(to + header_bytes_, frame_.data() + from, payload);

  auto* data = reinterpret_cast<uint8_t*>(to);
  renumber_ip(data + headers_.network_offset, headers_.key.has(kIpv4), bytes - headers_.network_offset, k);
  uint8_t* transport = data + headers_.transport_offset;
  if (headers_.key.has(kUdp)) {
    store_be<uint16_t>(transport + 4, static_cast<uint16_t>(bytes - headers_.transport_offset));
  } else {
    store_be<uint32_t>(transport + 4, load_be<uint32_t>(transport + 4) + k * payload_bytes_);
    if (k + 1 != count_) transport[13] &= static_cast<uint8_t>(~(kTcpFin | kTcpPush));
    if (k != 0) transport[13] &= static_cast<uint8_t>(~kTcpWindowReduced);
  }
  fill_checksums({to, bytes}, headers_);
  return bytes;
}

}  // namespace verbena::ethernet
