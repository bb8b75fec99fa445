// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace verbena::roce {

// AETH syndromes (IBTA volume 1, 9.7.5.2.1): bits 5 and 6 are the kind, the low five bits are credits, the
// RNR timer code or the NAK code. Bit 7 is reserved.
enum class AethKind : uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };
enum class NakCode : uint8_t {
  kSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3,
  kInvalidRdRequest = 4,
};

// Verbena's own syndrome, sent only between processes of one host after an RNR NAK: a receive request is
// posted now, so retransmit from this PSN. The syndrome differs from a sequence error NAK only in the
// reserved bit 7. So a peer that does not know kReadySyndrome reads a sequence error, and retransmits too.
inline constexpr uint8_t kReadySyndrome = 0xe0;

// The credit code of an ACK for "no end-to-end flow control", as Linux rxe and some hardware send it.
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
// Returns the low five bits: credits, RNR timer code or NAK code.
constexpr uint8_t aeth_value(uint8_t syndrome) {
  return syndrome & 0x1f;
}

// The delays of the RNR timer codes in microseconds (IBTA volume 1, table 46). Code 1 is 0.01 ms, code 2 is
// 0.02 ms, and the delay doubles with every two further codes. Code 0 is the longest delay, the value that
// would follow code 31.
inline constexpr std::array<uint32_t, 32> kRnrDelays{
    655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

constexpr Duration rnr_delay(uint8_t timer_code) {
  return std::chrono::microseconds(kRnrDelays[timer_code & 0x1f]);
}
// The RNR timer code that the agent sends repeatedly on behalf of a stopped process: 81.92 ms.
inline constexpr uint8_t kStoppedTimer = 26;

// Returns the local ACK timeout of a 5-bit code: 4.096 us * 2^code. Returns zero for code 0, which means "no
// timeout" (9.7.6.1.3).
constexpr Duration ack_timeout(uint8_t code) {
  return code == 0 ? Duration::zero() : Duration(int64_t{4096} << (code & 0x1f));
}

}  // namespace verbena::roce
