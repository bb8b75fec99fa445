// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace verbena::rsockets {

// The messages of the rsocket protocol: 32 bits that travel as immediate data of RDMA WRITEs, 3 bits of
// operation and 29 bits of value.
enum class Operation : uint32_t {
  kData = 0,    // value: bytes written into the granted buffer
  kDirect = 2,  // WRITE without immediate data into a mapped buffer; never in a message
  // value: sequence number of the first message that may not be sent. May come with a granted buffer.
  kCredits = 4,
  kIomap = 6,    // value: index of the mapped-buffer entry that was written
  kControl = 7,  // value: a Control
};

enum class Control : uint32_t {
  kDisconnect = 0,  // the sender neither sends nor receives data any more
  kKeepalive = 1,   // an empty WRITE without immediate data; never in a message
  kShutdown = 2,    // the sender sends no more data
};

inline constexpr uint32_t kMaxMessageValue = (1u << 29) - 1;

struct Message {
  Operation operation;
  uint32_t value;

  // REQUIRES: value <= kMaxMessageValue
  constexpr uint32_t encode() const { return static_cast<uint32_t>(operation) << 29 | value; }

  // Returns nullopt for reserved operations and for those that are never in a message.
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
