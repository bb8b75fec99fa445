// SPDX-License-Identifier: Apache-2.0
#include "wire/ethernet/offloads.h"

#include <algorithm>

namespace verbena::ethernet {

namespace {

const uint8_t* at(ConstBytes frame, uint32_t offset) {
  return reinterpret_cast<const uint8_t*>(frame.data()) + offset;
}

// The TCP or UDP part of a frame: its length and the position of its checksum. `bytes` is 0 if the part is
// incomplete, as in a fragment.
struct Transport {
  uint32_t bytes = 0;
  uint32_t checksum_at = 0;
};

Transport transport_of(ConstBytes frame, const FrameHeaders& headers) {
  const FlowKey& key = headers.key;
  if (!key.has(kTcp) && !key.has(kUdp)) return {};
  if ((key.fragment & kMoreFragments) != 0) return {};
  const uint8_t* network = at(frame, headers.network_offset);
  const uint32_t network_bytes = headers.transport_offset - headers.network_offset;
  // The IP header gives the length, since the frame may be padded.
  uint32_t bytes = load_be<uint16_t>(network + (key.has(kIpv4) ? 2 : 4));
  if (key.has(kIpv4)) {
    if (bytes < network_bytes) return {};
    bytes -= network_bytes;
  }
  const uint32_t least = key.has(kTcp) ? kTcpHeaderBytes : kUdpHeaderBytes;
  if (bytes < least || bytes > frame.size() - headers.transport_offset) return {};
  return {bytes, headers.transport_offset + (key.has(kTcp) ? 16u : 6u)};
}

uint64_t pseudo_header(const FlowKey& key, uint32_t bytes) {
  const size_t address_bytes = key.has(kIpv4) ? 4 : 16;
  uint64_t sum = uint64_t{key.protocol} + bytes;
  sum = sum_words({reinterpret_cast<const std::byte*>(key.source_ip.data()), address_bytes}, sum);
  return sum_words({reinterpret_cast<const std::byte*>(key.destination_ip.data()), address_bytes}, sum);
}

uint16_t transport_sum(ConstBytes frame, const FrameHeaders& headers, const Transport& transport) {
  return folded(sum_words(frame.subspan(headers.transport_offset, transport.bytes),
                          pseudo_header(headers.key, transport.bytes)));
}

// In UDP a checksum of zero means "none", so a computed zero is sent as 0xffff (RFC 768).
uint16_t as_sent(uint16_t checksum, bool udp) {
  return udp && checksum == 0 ? uint16_t{0xffff} : checksum;
}

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

// The sum does not depend on byte order (RFC 1071, 2B): adds four bytes at a time in the machine's order and
// swaps at the end.
uint64_t sum_words(ConstBytes bytes, uint64_t sum) {
  const uint8_t* data = at(bytes, 0);
  size_t left = bytes.size();
  uint64_t native = 0;
  for (; left >= sizeof(uint32_t); left -= sizeof(uint32_t), data += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, data, sizeof word);
    native += word;
  }
  uint32_t rest = 0;
  if (left > 0) std::memcpy(&rest, data, left);
  return sum + byteswap(folded(native + rest));
}

uint16_t folded(uint64_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

void fill_checksums(Bytes frame, const FrameHeaders& headers) {
  const FlowKey& key = headers.key;
  if (key.has(kIpv4)) {
    const Bytes network =
        frame.subspan(headers.network_offset, headers.transport_offset - headers.network_offset);
    store_be<uint16_t>(network.data() + 10, 0);
    store_be<uint16_t>(network.data() + 10, static_cast<uint16_t>(~folded(sum_words(network))));
  }
  const Transport transport = transport_of(frame, headers);
  if (transport.bytes == 0) return;
  std::byte* checksum = frame.data() + transport.checksum_at;
  store_be<uint16_t>(checksum, 0);
  const auto value = static_cast<uint16_t>(~transport_sum(frame, headers, transport));
  store_be<uint16_t>(checksum, as_sent(value, key.has(kUdp)));
}

bool checksums_good(ConstBytes frame, const FrameHeaders& headers, bool transport_checked) {
  const FlowKey& key = headers.key;
  if (!key.has(kIpv4) && !key.has(kIpv6)) return false;
  if (key.has(kIpv4)) {
    const ConstBytes network =
        frame.subspan(headers.network_offset, headers.transport_offset - headers.network_offset);
    if (folded(sum_words(network)) != 0xffff) return false;
  }
  if (transport_checked) return true;
  const Transport transport = transport_of(frame, headers);
  if (transport.bytes == 0) return !key.has(kTcp) && !key.has(kUdp);
  const bool none = load_be<uint16_t>(at(frame, transport.checksum_at)) == 0;
  if (none && key.has(kUdp)) return key.has(kIpv4);
  return transport_sum(frame, headers, transport) == 0xffff;
}

bool complete_checksum(Bytes frame, uint32_t start, uint32_t offset) {
  if (start > frame.size() || frame.size() - start < 2 || offset > frame.size() - start - 2) return false;
  const auto value = static_cast<uint16_t>(~folded(sum_words(frame.subspan(start))));
  store_be<uint16_t>(frame.data() + start + offset, value == 0 ? uint16_t{0xffff} : value);
  return true;
}

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
