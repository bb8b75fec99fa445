// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "network/super_frame.h"
#include "wire/ethernet/frames.h"

namespace verbena::network::testing {

using ethernet::testing::Frame;

// Returns `frame` as a host passes it to a device: not segmented yet, and with the checksum left to the
// device. REQUIRES: TCP or UDP, without VLAN tags and IP options.
inline SuperFrame super_frame(const Frame& frame, uint16_t segment_bytes) {
  const ethernet::FrameHeaders headers = *ethernet::parse_headers(frame);
  const bool tcp = headers.key.has(ethernet::kTcp);
  const bool ipv4 = headers.key.has(ethernet::kIpv4);
  Offload offload;
  offload.flags = Offload::kChecksumLeft;
  offload.segmentation = !tcp ? Offload::kUdp : ipv4 ? Offload::kTcpIpv4 : Offload::kTcpIpv6;
  offload.segment_bytes = segment_bytes;
  offload.checksum_start = static_cast<uint16_t>(headers.transport_offset);
  offload.checksum_offset = tcp ? 16 : 6;
  auto data = std::make_unique<std::byte[]>(frame.size());
  std::ranges::copy(frame, data.get());
  return {offload, std::move(data), static_cast<uint32_t>(frame.size())};
}

}  // namespace verbena::network::testing
