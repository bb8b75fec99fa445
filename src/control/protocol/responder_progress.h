// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::protocol {

// The progress of a QP's responder, encoded in one number of the status page (kQpReceivePsn). The agent reads
// it to answer peers of a stopped process. All requests before `expected` are executed. So an RNR NAK for
// `expected` or an earlier PSN acknowledges only executed requests.
struct ResponderProgress {
  uint32_t expected = 0;  // PSN; 24 bits
  uint32_t msn = 0;       // 24 bits
  uint8_t rnr_retry = 0;  // of the QP's own requester; programs set the same at both ends
  bool is_exact = false;  // true if stored before each acknowledgement, false if it may lag by a moment
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
