// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace verbena::rsockets {

// The 32-bit messages of the rsocket protocol, which travel as the immediate data of RDMA WRITEs: three bits
// of operation, 29 of value.
enum class Operation : uint32_t {
  kData = 0,    // value: bytes written into the buffer that was granted
  kDirect = 2,  // a write into a mapped buffer: never on the wire, it is a WRITE without immediate data
  kCredits =
      4,  // value: the sequence number of the first message that may not be sent; a buffer may come along
  kIomap = 6,    // value: the entry of the table of mapped buffers that was written
  kControl = 7,  // value: a Control
};

enum class Control : uint32_t {
  kDisconnect = 0,  // neither sends nor receives any more
  kKeepalive = 1,   // never on the wire either: a WRITE of nothing says it
  kShutdown = 2,    // sends no more
};

inline constexpr uint32_t kMaxMessageValue = (1u << 29) - 1;

struct Message {
  Operation operation;
  uint32_t value;

  // REQUIRES: value <= kMaxMessageValue
  constexpr uint32_t encode() const { return static_cast<uint32_t>(operation) << 29 | value; }

  // Nothing for the reserved operations and the ones that never travel.
  static constexpr std::optional<Message> decode(uint32_t word) {
    const auto operation = static_cast<Operation>(word >> 29);
    switch (operation) {
      case Operation::kData:
      case Operation::kCredits:
      case Operation::kIomap:
      case Operation::kControl:
        return Message{operation, word & kMaxMessageValue};
      default:
        return std::nullopt;
    }
  }

  static constexpr Message control(Control what) {
    return {Operation::kControl, static_cast<uint32_t>(what)};
  }

  friend constexpr bool operator==(Message, Message) = default;
};

}  // namespace verbena::rsockets
