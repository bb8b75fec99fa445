// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace verbena::roce {

// The transport service, the top three bits of a BTH opcode (IBTA volume 1, table 38).
enum class Service : uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

// The operation, the low five bits of a BTH opcode.
enum class Operation : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImmediate = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImmediate = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kResync = 0x15,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kFlush = 0x1c,        // IBTA volume 1 release 1.5, annex A19
  kAtomicWrite = 0x1d,  // IBTA volume 1 release 1.5, annex A19
};

inline constexpr uint8_t kCnpOpcode = 0x81;
// Verbena's own opcodes, from the range for manufacturers (table 38). kSackOpcode: a selective
// acknowledgement (adapter/transport/control_packets.h).
inline constexpr uint8_t kSackOpcode = 0xc0;
// The requester's answer to a SACK: the requester understands SACKs.
inline constexpr uint8_t kSackConfirmationOpcode = 0xc1;
inline constexpr uint8_t kReceiverReportOpcode = 0xc2;  // adapter/transport/control_packets.h
inline constexpr uint8_t kReportRequestOpcode = 0xc3;
// Sent before a NAK on routes that lose no packets: a text with the reason of the NAK.
inline constexpr uint8_t kRefusalOpcode = 0xc4;
inline constexpr uint8_t kRepeatedReadsOpcode = 0xc5;  // adapter/transport/control_packets.h
// Sent by the agent for a stopped process. Acts as an RNR NAK for this PSN, but uses up none of the
// requester's RNR retries.
inline constexpr uint8_t kStoppedOpcode = 0xc6;

constexpr uint8_t make_opcode(Service service, Operation operation) {
  return static_cast<uint8_t>(static_cast<uint8_t>(service) << 5 | static_cast<uint8_t>(operation));
}
// The opcode of every management datagram.
inline constexpr uint8_t kUdSendOnlyOpcode = make_opcode(Service::kUd, Operation::kSendOnly);

constexpr Service service_of(uint8_t opcode) {
  return static_cast<Service>(opcode >> 5);
}
constexpr Operation operation_of(uint8_t opcode) {
  return static_cast<Operation>(opcode & 0x1f);
}

// Extension headers, one bit each. The order of the bits is the order of the headers after the BTH (IBTA
// volume 1, 5.2.x and table 38).
enum ExtensionHeader : uint16_t {
  kNoExtension = 0,
  kXrceth = 1 << 0,
  kDeth = 1 << 1,
  kFeth = 1 << 2,
  kReth = 1 << 3,
  kAtomicEth = 1 << 4,
  kAeth = 1 << 5,
  kAtomicAckEth = 1 << 6,
  kImmediate = 1 << 7,
  kIeth = 1 << 8,
};

// The properties of packets of one opcode. The table kOpcodes is the only place that derives a packet's
// layout from its opcode.
struct OpcodeInfo {
  const char* name = nullptr;  // nullptr if there is no such opcode
  uint16_t extensions = 0;     // ExtensionHeader bits
  bool carries_payload = false;
  bool starts_message = false;  // First and Only
  bool ends_message = false;    // Last and Only
  bool is_request = false;      // sent by the requester, not the responder

  constexpr bool exists() const { return name != nullptr; }
  constexpr bool has(ExtensionHeader header) const { return (extensions & header) != 0; }
};

extern const std::array<OpcodeInfo, 256> kOpcodes;
// The length in bytes of BTH and extension headers, by opcode; of a BTH alone for an unknown opcode.
extern const std::array<uint8_t, 256> kHeaderBytes;

}  // namespace verbena::roce
