// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/roce/mad.h"

namespace verbena::mad {

using roce::kAttributeAt, roce::kBaseVersionAt, roce::kClassAt, roce::kClassVersionAt, roce::kMethodAt;
using roce::kMadBytes, roce::kMadHeaderBytes, roce::kModifierAt, roce::kStatusAt, roce::kTransactionAt;
using roce::Mad;

// Management classes. (Sections and tables in this header are of IBTA volume 1: here table 111.)
inline constexpr uint8_t kClassSubnLid = 0x01;
inline constexpr uint8_t kClassSubnAdministration = 0x03;
inline constexpr uint8_t kClassPerformance = 0x04;
inline constexpr uint8_t kClassDeviceManagement = 0x06;
inline constexpr uint8_t kClassConnection = 0x07;
inline constexpr uint8_t kClassDeviceAdministration = 0x10;
inline constexpr uint8_t kClassBis = 0x12;
inline constexpr uint8_t kClassSubnDirected = 0x81;
constexpr bool is_subnet_management(uint8_t management_class) {
  return management_class == kClassSubnLid || management_class == kClassSubnDirected;
}
// Returns whether the class is a vendor class of range 2. Its datagrams contain an OUI, so that several
// vendors can use one class.
constexpr bool is_vendor_with_oui(uint8_t management_class) {
  return management_class >= 0x30 && management_class <= 0x4f;
}

// Returns whether messages of the class may span several datagrams (rmpp.h).
constexpr bool has_rmpp(uint8_t management_class) {
  return management_class == kClassSubnAdministration || management_class == kClassDeviceManagement ||
         management_class == kClassDeviceAdministration || management_class == kClassBis ||
         is_vendor_with_oui(management_class);
}

// Methods (table 112); answers have the top bit (kMethodResponse) set.
inline constexpr uint8_t kMethodGet = 0x01;
inline constexpr uint8_t kMethodSet = 0x02;
inline constexpr uint8_t kMethodSend = roce::kMadMethodSend;
inline constexpr uint8_t kMethodTrapRepress = 0x07;
inline constexpr uint8_t kMethodGetTable = 0x12;  // subnet administration
inline constexpr uint8_t kMethodResponse = 0x80;

// Attributes of all classes (table 115).
inline constexpr uint16_t kAttributeClassPortInfo = 0x0001;
inline constexpr uint8_t kResponseTime = 16;  // RespTimeValue in our ClassPortInfo: 4.096 us * 2^16 = 268 ms

// The status of an answer (table 113).
enum class MadStatus : uint16_t {
  kSuccess = 0,
  kBusy = 0x0001,
  kBadVersion = 0x0004,
  kUnsupportedMethod = 0x0008,
  kUnsupportedAttribute = 0x000c,  // also if the method is unsupported for this attribute
  kInvalidValue = 0x001c,
  // Subnet administration (table 186).
  kNoResources = 0x0100,
  kRequestInvalid = 0x0200,
  kNoRecords = 0x0300,
  kTooManyRecords = 0x0400,
};

inline constexpr size_t kOuiAt = 37;  // vendor classes of range 2 (16.5.1)

// The fields of the MAD header, and the OUI, by which a datagram is delivered to its handler.
struct MadHeader {
  uint8_t base_version = roce::kMadBaseVersion;
  uint8_t management_class = 0;
  uint8_t class_version = 1;
  uint8_t method = 0;
  uint64_t transaction = 0;
  uint16_t attribute = 0;
  uint32_t modifier = 0;
  uint32_t oui = 0;  // for vendor classes of range 2; else 0

  // Returns whether the datagram answers a request, so that it is delivered to the requester. A TrapRepress
  // counts as an answer (13.4.6.2).
  bool is_response() const { return (method & kMethodResponse) != 0 || method == kMethodTrapRepress; }
};
inline MadHeader header_of(const Mad& mad) {
  MadHeader header;
  header.base_version = mad.u8(kBaseVersionAt);
  header.management_class = mad.u8(kClassAt);
  header.class_version = mad.u8(kClassVersionAt);
  header.method = mad.u8(kMethodAt);
  header.transaction = mad.get<uint64_t>(kTransactionAt);
  header.attribute = mad.get<uint16_t>(kAttributeAt);
  header.modifier = mad.get<uint32_t>(kModifierAt);
  if (is_vendor_with_oui(header.management_class)) header.oui = load_be24(mad.at(kOuiAt));
  return header;
}

// Sets the status field. In an answer with a directed route, also sets the direction bit, which is part of
// the status field.
inline void set_status(Mad& mad, MadStatus status) {
  constexpr uint16_t kOnTheWayBack = 0x8000;
  const bool directed = mad.u8(kClassAt) == kClassSubnDirected;
  mad.set(kStatusAt, static_cast<uint16_t>(static_cast<uint16_t>(status) | (directed ? kOnTheWayBack : 0)));
}

// Begins an answer: copies the whole request, sets the response bit and the status, and turns Set into
// GetResp. The caller overwrites the data.
inline Mad begin_answer(const Mad& request, MadStatus status = MadStatus::kSuccess) {
  Mad answer = request;
  const uint8_t method = request.u8(kMethodAt);
  answer.set_u8(kMethodAt,
                static_cast<uint8_t>((method == kMethodSet ? kMethodGet : method) | kMethodResponse));
  set_status(answer, status);
  return answer;
}

}  // namespace verbena::mad
