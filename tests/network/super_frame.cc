// SPDX-License-Identifier: Apache-2.0
#include "network/super_frame.h"

#include <algorithm>
#include <utility>

#include "wire/ethernet/offloads.h"

namespace verbena::network {
namespace {

using ethernet::FrameHeaders;

constexpr uint32_t kUdpHeaderBytes = 8;
constexpr uint32_t kTcpHeaderBytes = 20;
constexpr uint32_t kTcpFlagsAt = 13;
constexpr uint8_t kFin = 0x01, kPush = 0x08, kWindowReduced = 0x80;
constexpr uint8_t kCongestionExperienced = 3;
// The copied part of a frame that is not segmented; it contains every byte that may have to be changed.
constexpr uint32_t kOwnHeaderBytes = 64;

void fill_ip_checksum(std::byte* network, uint32_t bytes) {
  store_be<uint16_t>(network + 10, 0);
  const uint16_t sum = ethernet::folded(ethernet::sum_words({network, bytes}));
  store_be<uint16_t>(network + 10, static_cast<uint16_t>(~sum));
}

// The sum of pseudo header and length, which the checksum field holds when the device completes the checksum.
uint16_t pseudo_header_sum(const FrameHeaders& headers, uint32_t transport_bytes) {
  const ethernet::FlowKey& key = headers.key;
  const size_t address_bytes = key.has(ethernet::kIpv4) ? 4 : 16;
  const auto address = [&](const std::array<uint8_t, 16>& ip) {
    return ConstBytes(reinterpret_cast<const std::byte*>(ip.data()), address_bytes);
  };
  const uint64_t sum = uint64_t{key.protocol} + transport_bytes;
  return ethernet::folded(
      ethernet::sum_words(address(key.destination_ip), ethernet::sum_words(address(key.source_ip), sum)));
}

}  // namespace

SuperFrame::SuperFrame(const Offload& offload, std::unique_ptr<std::byte[]> data, uint32_t bytes)
    : offload_(offload), data_(std::move(data)), bytes_(bytes) {
  if (const auto headers = ethernet::parse_headers({data_.get(), bytes_})) headers_ = *headers;
  if (!find_segments()) {
    segments_ = 1;
    header_bytes_ = std::min(bytes_, kOwnHeaderBytes);
  }
}

// Finds the segments. False if the frame is not segmented.
bool SuperFrame::find_segments() {
  const bool tcp = offload_.is_tcp();
  if (!is_ip() || (!tcp && offload_.segmentation != Offload::kUdp) || offload_.segment_bytes == 0)
    return false;
  if (!offload_.leaves_checksum()) return false;
  const uint32_t transport = offload_.checksum_start;
  const uint32_t least = tcp ? kTcpHeaderBytes : kUdpHeaderBytes;
  if (transport < headers_.transport_offset || transport + least > bytes_) return false;
  if (offload_.checksum_offset + sizeof(uint16_t) > least) return false;
  header_bytes_ = transport + least;
  if (tcp) header_bytes_ = transport + (std::to_integer<uint32_t>(data_[transport + 12]) >> 4) * 4;
  if (header_bytes_ < transport + least || header_bytes_ > sizeof(Run::header_room) ||
      header_bytes_ >= bytes_) {
    return false;
  }
  segments_ = (bytes_ - header_bytes_ + offload_.segment_bytes - 1) / offload_.segment_bytes;
  return true;
}

uint32_t SuperFrame::payload_bytes(uint32_t first, uint32_t count) const {
  const uint32_t all = bytes_ - header_bytes_;
  if (segments_ == 1) return all;
  return std::min(all - first * offload_.segment_bytes, count * offload_.segment_bytes);
}

SuperFrame::Run SuperFrame::run(uint32_t first, uint32_t count, bool marked) const {
  Run run;
  run.offload = offload_;
  run.header_bytes = header_bytes_;
  std::copy_n(data_.get(), header_bytes_, run.header_room.data());
  run.payload = {data_.get() + header_bytes_ + (segments_ == 1 ? 0 : first * offload_.segment_bytes),
                 payload_bytes(first, count)};
  if (count != segments_) set_place(run, first, count);
  if (marked && ecn_capable()) mark(run);
  return run;
}

// Sets the header fields that segmentation changes, for a run of segments: IP length and identification, TCP
// sequence number and flags.
void SuperFrame::set_place(Run& run, uint32_t first, uint32_t count) const {
  const auto bytes = static_cast<uint32_t>(header_bytes_ + run.payload.size());
  std::byte* const network = run.header_room.data() + headers_.network_offset;
  if (headers_.key.has(ethernet::kIpv4)) {
    store_be<uint16_t>(network + 2, static_cast<uint16_t>(bytes - headers_.network_offset));
    store_be<uint16_t>(network + 4, static_cast<uint16_t>(load_be<uint16_t>(network + 4) + first));
    fill_ip_checksum(network, headers_.transport_offset - headers_.network_offset);
  } else {
    const uint32_t before = headers_.network_offset + ethernet::kIpv6HeaderBytes;
    store_be<uint16_t>(network + 4, static_cast<uint16_t>(bytes - before));
  }

  std::byte* const transport = run.header_room.data() + offload_.checksum_start;
  const uint32_t transport_bytes = bytes - offload_.checksum_start;
  if (offload_.is_tcp()) {
    store_be<uint32_t>(transport + 4, load_be<uint32_t>(transport + 4) + first * offload_.segment_bytes);
    auto flags = std::to_integer<uint8_t>(transport[kTcpFlagsAt]);
    if (first + count != segments_) flags &= static_cast<uint8_t>(~(kFin | kPush));
    if (first != 0) flags &= static_cast<uint8_t>(~kWindowReduced);
    transport[kTcpFlagsAt] = std::byte{flags};
  } else {
    store_be<uint16_t>(transport + 4, static_cast<uint16_t>(transport_bytes));
  }
  store_be<uint16_t>(transport + offload_.checksum_offset, pseudo_header_sum(headers_, transport_bytes));
  run.offload.header_bytes = static_cast<uint16_t>(header_bytes_);
  if (run.payload.size() <= offload_.segment_bytes) {
    run.offload.segmentation = 0;
    run.offload.segment_bytes = 0;
  }
}

void SuperFrame::mark(Run& run) const {
  std::byte* const network = run.header_room.data() + headers_.network_offset;
  if (headers_.key.has(ethernet::kIpv4)) {
    network[1] |= std::byte{kCongestionExperienced};
    fill_ip_checksum(network, headers_.transport_offset - headers_.network_offset);
  } else {
    network[1] |= std::byte{kCongestionExperienced << 4};  // no checksum covers the traffic class
  }
}

std::vector<std::byte> SuperFrame::damaged(uint32_t k, bool marked, uint64_t damage) const {
  const Run one = run(k, 1, marked);
  std::vector<std::byte> frame(one.headers().begin(), one.headers().end());
  frame.insert(frame.end(), one.payload.begin(), one.payload.end());
  if (one.offload.leaves_checksum()) {
    ethernet::complete_checksum(frame, one.offload.checksum_start, one.offload.checksum_offset);
  }
  const uint64_t bit = damage % ((frame.size() - headers_.network_offset) * 8);
  frame[headers_.network_offset + bit / 8] ^= std::byte{1} << (bit % 8);
  return frame;
}

}  // namespace verbena::network
