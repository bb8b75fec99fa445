// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "wire/ethernet/steering.h"

namespace verbena::ethernet {

// These functions compute the Internet checksum (RFC 1071) over several pieces of data. sum_words() adds the
// 16-bit words of a piece to `sum`; a piece of odd length is padded with a zero byte. folded() folds the sum
// to 16 bits without complementing it.
uint64_t sum_words(ConstBytes bytes, uint64_t sum = 0);
uint16_t folded(uint64_t sum);

// Fills in the checksums of the IP, TCP and UDP headers, as an adapter does for IBV_SEND_IP_CSUM. Skips TCP
// or UDP if the frame does not contain the whole segment or datagram.
void fill_checksums(Bytes frame, const FrameHeaders& headers);

// Returns whether the frame has an IP header and all its checksums are right, as adapters report with
// IBV_WC_IP_CSUM_OK. A UDP datagram over IPv4 may lack a checksum (RFC 768). Returns false if a TCP or UDP
// checksum cannot be verified because the datagram is incomplete. `transport_checked`: the kernel has
// verified TCP and UDP checksums, so they are skipped.
bool checksums_good(ConstBytes frame, const FrameHeaders& headers, bool transport_checked = false);

// Completes a checksum that the kernel left to the device: sums the bytes from `start` to the frame's end,
// and writes the checksum at `start + offset`. REQUIRES: the checksum field contains the sum of the pseudo
// header. Returns false, without a change, if the field is outside the frame.
bool complete_checksum(Bytes frame, uint32_t start, uint32_t offset);

// Splits a frame that the kernel merged (GRO) or has not split yet (GSO) into the frames on the wire. The
// frames are segment(k) for k = 0 ... count() - 1.
class Segmentation {
 public:
  // `payload_bytes`: TCP or UDP payload per segment. `frame` must stay valid. A frame that cannot be split,
  // such as one without a TCP or UDP header, counts as one segment.
  Segmentation(ConstBytes frame, uint32_t payload_bytes);

  uint32_t count() const { return count_; }
  // Writes segment `k`, a whole frame with all its checksums, and returns its length in bytes. REQUIRES:
  // count() > 1. REQUIRES: `to` has room for segment_bytes()
  uint32_t segment(uint32_t k, std::byte* to) const;
  // Returns the maximum length in bytes of a segment, including its headers.
  uint32_t segment_bytes() const { return header_bytes_ + payload_bytes_; }

 private:
  ConstBytes frame_;
  FrameHeaders headers_;
  uint32_t header_bytes_ = 0;
  uint32_t payload_bytes_ = 0;
  uint32_t count_ = 1;
};

}  // namespace verbena::ethernet
