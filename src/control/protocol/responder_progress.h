// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::protocol {

// How far a responder has come, as one number of the status page (kQpReceivePsn): the agent answers for it
// while its process is stopped. An RNR NAK for `expected` or a PSN before it acknowledges nothing that was
// not executed, and the requester has had no acknowledgement beyond it.
struct ResponderProgress {
  uint32_t expected = 0;  // PSN; 24 bits
  uint32_t msn = 0;       // 24 bits
  uint8_t rnr_retry = 0;  // of the QP's own requester: programs set the same at both ends
  bool is_exact = false;  // stored before each acknowledgement; false: as it was a moment ago
};

constexpr uint64_t encode(const ResponderProgress& progress) {
  return uint64_t{progress.expected & 0xffffff} | uint64_t{progress.msn & 0xffffff} << 32 |
         uint64_t{progress.rnr_retry & 7u} << 56 | uint64_t{progress.is_exact} << 63;
}

constexpr ResponderProgress decode_responder_progress(uint64_t number) {
  return {.expected = static_cast<uint32_t>(number & 0xffffff),
          .msn = static_cast<uint32_t>(number >> 32 & 0xffffff),
          .rnr_retry = static_cast<uint8_t>(number >> 56 & 7),
          .is_exact = (number >> 63) != 0};
}

}  // namespace verbena::protocol
