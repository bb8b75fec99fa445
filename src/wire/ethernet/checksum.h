// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

// The Internet checksum (RFC 1071) over several pieces: adds the words of a piece to `sum`, and folds the sum
// to 16 bits without complementing it.
uint64_t sum_words(ConstBytes bytes, uint64_t sum = 0);
uint16_t folded(uint64_t sum);

// Fills in the checksums of the IP, TCP and UDP headers, as an adapter does for IBV_SEND_IP_CSUM. Skips TCP
// or UDP parts that the frame does not contain completely.
void fill_checksums(Bytes frame, const FrameHeaders& headers);

// Whether the frame has an IP header and all its checksums are right, as adapters report with
// IBV_WC_IP_CSUM_OK. A UDP datagram over IPv4 may have none (RFC 768). `transport_checked`: skips TCP and UDP
// checksums, which have been verified elsewhere.
bool checksums_good(ConstBytes frame, const FrameHeaders& headers, bool transport_checked = false);

// Completes a checksum that the kernel left to the device: sums from `start` to the frame's end and writes
// the result at `start + offset`, where the pseudo header's sum is. False if that is outside the frame.
bool complete_checksum(Bytes frame, uint32_t start, uint32_t offset);

}  // namespace verbena::ethernet
