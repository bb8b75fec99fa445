// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

// The Internet checksum (RFC 1071) over pieces: a sum to continue, and its final step.
uint64_t sum_words(ConstBytes bytes, uint64_t sum = 0);
uint16_t folded(uint64_t sum);

// Fills in the checksums of IP header, TCP and UDP where the frame has them complete, as an adapter does for
// IBV_SEND_IP_CSUM.
void fill_checksums(Bytes frame, const FrameHeaders& headers);

// Whether the frame has an IP header and all its checksums are right, as adapters report with
// IBV_WC_IP_CSUM_OK. A UDP datagram over IPv4 may have none (RFC 768). `transport_checked`: those of TCP and
// UDP have been checked already.
bool checksums_good(ConstBytes frame, const FrameHeaders& headers, bool transport_checked = false);

// Completes a checksum that the kernel left to the device: the sum from `start` to the frame's end is written
// `offset` bytes behind `start`, where the pseudo header's sum already is. False: outside the frame.
bool complete_checksum(Bytes frame, uint32_t start, uint32_t offset);

}  // namespace verbena::ethernet
