// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "network/offload.h"
#include "wire/ethernet/steering.h"

namespace verbena::network {

// A frame that a host passes to a device for segmentation (TSO, USO). Its segments travel separately, and
// consecutive ones can be delivered together as one frame. A frame without segmentation has one segment.
// Immutable.
class SuperFrame {
 public:
  // `offload` is the host's header. REQUIRES: `data` holds `bytes` bytes.
  SuperFrame(const Offload& offload, std::unique_ptr<std::byte[]> data, uint32_t bytes);

  uint32_t segments() const { return segments_; }
  // The size of segment `k` as a frame on the wire.
  uint32_t segment_bytes(uint32_t k) const { return header_bytes_ + payload_bytes(k, 1); }
  bool is_ip() const { return headers_.key.has(ethernet::kIpv4) || headers_.key.has(ethernet::kIpv6); }
  bool ecn_capable() const { return is_ip() && (headers_.key.traffic_class & 3) != 0; }
  const ethernet::FrameHeaders& headers() const { return headers_; }
  ConstBytes bytes() const { return {data_.get(), bytes_}; }

  // Consecutive segments as one frame to be written to a host: new headers, and payload of this frame.
  struct Run {
    Offload offload;
    std::array<std::byte, 256> header_room;
    uint32_t header_bytes;
    ConstBytes payload;

    ConstBytes headers() const { return {header_room.data(), header_bytes}; }
  };
  // Returns segments [first, first + count). `marked` sets CE (RFC 3168) if the frame is ECN-capable.
  // REQUIRES: count > 0, first + count <= segments().
  Run run(uint32_t first, uint32_t count, bool marked) const;

  // Returns one segment with all its checksums, then flips one bit after its Ethernet header, chosen by
  // `damage`. REQUIRES: is_ip().
  std::vector<std::byte> damaged(uint32_t k, bool marked, uint64_t damage) const;

 private:
  bool find_segments();
  uint32_t payload_bytes(uint32_t first, uint32_t count) const;
  void set_place(Run& run, uint32_t first, uint32_t count) const;
  void mark(Run& run) const;

  const Offload offload_;
  const std::unique_ptr<std::byte[]> data_;
  const uint32_t bytes_;
  ethernet::FrameHeaders headers_;
  uint32_t header_bytes_ =
      0;  // headers that each run has a copy of: all headers if there are several segments
  uint32_t segments_ = 1;
};

}  // namespace verbena::network
