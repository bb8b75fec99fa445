// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "network/offload.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::network {

// A frame as a host's stack hands it to a device that cuts it into segments (TSO, USO): what travels is the
// segments, and any run of them can be handed to the other host in one piece again. A frame that need not be
// cut is its only segment. Not changed once it is made.
class SuperFrame {
 public:
  // `offload` as the host gave it. REQUIRES: bytes are in `data`
  SuperFrame(const Offload& offload, std::unique_ptr<std::byte[]> data, uint32_t bytes);

  uint32_t segments() const { return segments_; }
  // Of the frame that segment is on a wire.
  uint32_t segment_bytes(uint32_t k) const { return header_bytes_ + payload_bytes(k, 1); }
  bool is_ip() const { return headers_.key.has(ethernet::kIpv4) || headers_.key.has(ethernet::kIpv6); }
  bool ecn_capable() const { return is_ip() && (headers_.key.traffic_class & 3) != 0; }
  const ethernet::FrameHeaders& headers() const { return headers_; }
  ConstBytes bytes() const { return {data_.get(), bytes_}; }

  // A run of segments as one frame, to be written to a host: headers of its own, and payload of this frame's.
  struct Run {
    Offload offload;
    std::array<std::byte, 256> header_room;
    uint32_t header_bytes;
    ConstBytes payload;

    ConstBytes headers() const { return {header_room.data(), header_bytes}; }
  };
  // `marked`: congestion experienced (RFC 3168), if it is ECN-capable. REQUIRES: count > 0, first + count <=
  // segments()
  Run run(uint32_t first, uint32_t count, bool marked) const;

  // One segment with all its checksums, and then one bit behind its Ethernet header changed. Which: `damage`
  // says. REQUIRES: is_ip()
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
  uint32_t header_bytes_ = 0;  // what a run has of its own; all headers, where there is more than one segment
  uint32_t segments_ = 1;
};

}  // namespace verbena::network
