// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

namespace verbena::roce {

// AETH syndromes (IBTA volume 1, 9.7.5.2.1): the top three bits say which kind, the low five carry credits,
// the RNR timer code or the NAK code.
enum class AethKind : uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };
enum class NakCode : uint8_t {
  kSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3,
  kInvalidRdRequest = 4,
};

// Ours alone, and only between processes of one host: the receive request is there, send again from this PSN.
// Bit 7 is reserved, so an end that does not know it takes it for a sequence error and sends again, too.
inline constexpr uint8_t kReadySyndrome = 0xe0;

// Credits are not used: 31 says so (as Linux rxe and hardware without end-to-end flow control do).
inline constexpr uint8_t kUnlimitedCredits = 31;

constexpr uint8_t ack_syndrome(uint8_t credits = kUnlimitedCredits) {
  return credits & 0x1f;
}
constexpr uint8_t rnr_syndrome(uint8_t timer_code) {
  return static_cast<uint8_t>(0x20 | (timer_code & 0x1f));
}
constexpr uint8_t nak_syndrome(NakCode code) {
  return static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code));
}
constexpr AethKind aeth_kind(uint8_t syndrome) {
  return static_cast<AethKind>((syndrome >> 5) & 3);
}
constexpr uint8_t aeth_value(uint8_t syndrome) {
  return syndrome & 0x1f;
}

// How long a 5-bit RNR timer code asks to wait: 10 us to 655.36 ms (IBTA volume 1, table 46; code 0 is the
// longest).
Duration rnr_delay(uint8_t timer_code);
// How long the peers of a process that is stopped are asked to wait, again and again: 81.92 ms.
inline constexpr uint8_t kStoppedTimer = 26;

// The local ACK timeout of a 5-bit code: 4.096 us * 2^code; zero for code 0, which means "infinite"
// (9.7.6.1.3).
constexpr Duration ack_timeout(uint8_t code) {
  return code == 0 ? Duration::zero() : Duration(int64_t{4096} << (code & 0x1f));
}

}  // namespace verbena::roce
