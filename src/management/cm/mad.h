// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/roce/mad.h"

namespace verbena::cm {

using roce::kGsiQkey, roce::kGsiQpn, roce::kMadBytes, roce::kMadHeaderBytes, roce::Mad;

inline constexpr uint8_t kMadClass = 0x07;  // communication management
inline constexpr uint8_t kMadClassVersion = 2;

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

}  // namespace verbena::cm
