// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

// Splits a frame that the kernel merged (GRO) or has not split yet (GSO) into the frames on the wire. They
// are segment(k) for k = 0 ... count() - 1.
class Segmentation {
 public:
  // `payload_bytes`: TCP or UDP payload per segment. `frame` must stay valid. A frame that cannot be split,
  // such as one without a TCP or UDP header, counts as one segment.
  Segmentation(ConstBytes frame, uint32_t payload_bytes);

  uint32_t count() const { return count_; }
  // Writes segment `k` with all its checksums and returns its length. REQUIRES: count() > 1. REQUIRES: `to`
  // has room for segment_bytes()
  uint32_t segment(uint32_t k, std::byte* to) const;
  uint32_t segment_bytes() const { return header_bytes_ + payload_bytes_; }

 private:
  ConstBytes frame_;
  FrameHeaders headers_;
  uint32_t header_bytes_ = 0;
  uint32_t payload_bytes_ = 0;
  uint32_t count_ = 1;
};

}  // namespace verbena::ethernet
