// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "ethernet/flow_key.h"

namespace verbena::ethernet {

// The Internet checksum (RFC 1071) over pieces: a sum to go on with, and its end.
uint64_t sum_words(ConstBytes bytes, uint64_t sum = 0);
uint16_t folded(uint64_t sum);

// Fills in the checksums of IP header, TCP and UDP as far as the frame has them in full: what an adapter does
// for IBV_SEND_IP_CSUM.
void fill_checksums(Bytes frame, const FrameHeaders& headers);

// Whether the frame has an IP header and every checksum there is right; as adapters say with
// IBV_WC_IP_CSUM_OK. A UDP datagram over IPv4 may be without (RFC 768). `transport_checked`: somebody has
// looked at those of TCP and UDP.
bool checksums_good(ConstBytes frame, const FrameHeaders& headers, bool transport_checked = false);

// Ends a checksum that the kernel has left to the device: the sum from `start` to the frame's end goes to
// `offset` behind it, where that of the pseudo header is already. False: they lie outside the frame.
bool complete_checksum(Bytes frame, uint32_t start, uint32_t offset);

}  // namespace verbena::ethernet
