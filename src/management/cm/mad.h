// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace verbena::cm {

// A management datagram (IBTA volume 1, 13.4.3): 24 bytes of header, 232 of data, always full length.
inline constexpr size_t kMadBytes = 256;
inline constexpr size_t kMadHeaderBytes = 24;
inline constexpr size_t kMadDataBytes = kMadBytes - kMadHeaderBytes;

inline constexpr uint8_t kMadBaseVersion = 1;
inline constexpr uint8_t kMadClass = 0x07;  // communication management
inline constexpr uint8_t kMadClassVersion = 2;
inline constexpr uint8_t kMadMethodSend = 0x03;

// The queue pair that CM datagrams are sent from and to, QP1, and its Q_Key (IBTA volume 1, 10.2.5).
inline constexpr uint32_t kGsiQpn = 1;
inline constexpr uint32_t kGsiQkey = 0x80010000;

// The messages of the CM class (IBTA volume 1, table 104), numbered from zero. The attribute ID of a message
// is 0x0010 (kFirstAttribute) plus this number.
enum class MessageType : uint8_t {
  kReq,
  kMra,
  kRej,
  kRep,
  kRtu,
  kDreq,
  kDrep,
  kSidrReq,
  kSidrRep,
  kLap,
  kApr,
};
inline constexpr size_t kMessageTypes = 11;
inline constexpr uint16_t kFirstAttribute = 0x0010;
const char* message_name(MessageType type);

// A datagram to be sent, or stored for retransmission.
struct Mad {
  std::array<std::byte, kMadBytes> bytes{};

  friend bool operator==(const Mad&, const Mad&) = default;
};
static_assert(sizeof(Mad) == kMadBytes);

// The variable fields of the MAD header; the other fields are the same in every datagram of the CM class.
struct MadHeader {
  MessageType type = MessageType::kReq;
  uint64_t transaction = 0;
  uint32_t modifier = 0;  // attribute modifier: options of enhanced connection establishment

  friend bool operator==(const MadHeader&, const MadHeader&) = default;
};

}  // namespace verbena::cm
