// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/wire_packets.h"

#include <algorithm>
#include <array>
#include <optional>

namespace verbena::capture {
namespace {

using roce::Operation;

// The opcodes of a message's packets (IBTA volume 1, table 38): of a single packet, and of the first, middle
// and last of several.
struct Shape {
  Operation only;
  Operation first;
  Operation middle;
  Operation last;
};
constexpr std::array kShapes = {
    Shape{Operation::kSendOnly, Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLast},
    Shape{Operation::kSendOnlyImmediate, Operation::kSendFirst, Operation::kSendMiddle,
          Operation::kSendLastImmediate},
    Shape{Operation::kSendOnlyInvalidate, Operation::kSendFirst, Operation::kSendMiddle,
          Operation::kSendLastInvalidate},
    Shape{Operation::kWriteOnly, Operation::kWriteFirst, Operation::kWriteMiddle, Operation::kWriteLast},
    Shape{Operation::kWriteOnlyImmediate, Operation::kWriteFirst, Operation::kWriteMiddle,
          Operation::kWriteLastImmediate},
    Shape{Operation::kReadResponseOnly, Operation::kReadResponseFirst, Operation::kReadResponseMiddle,
          Operation::kReadResponseLast},
};

std::optional<Shape> shape_of(Operation operation) {
  const auto found = std::ranges::find_if(kShapes, [&](const Shape& shape) {
    return operation == shape.only || operation == shape.first || operation == shape.middle ||
           operation == shape.last;
  });
  return found != kShapes.end() ? std::optional(*found) : std::nullopt;
}

// The opcode of one packet in a super-packet. The super-packet's opcode tells whether its first packet begins
// the message and its last one ends it (roce::Packet::count).
Operation operation_at(Operation operation, bool is_first, bool is_last) {
  const Shape shape = *shape_of(operation);
  const bool begins = is_first && (operation == shape.only || operation == shape.first);
  const bool ends = is_last && (operation == shape.only || operation == shape.last);
  if (begins) return shape.first;
  return ends ? shape.last : shape.middle;
}

}  // namespace

bool can_be_joined(uint8_t opcode) {
  return roce::service_of(opcode) == roce::Service::kRc && shape_of(roce::operation_of(opcode)).has_value();
}

WirePacket packet_at(const Record& record, uint32_t index) {
  const bool is_first = index == 0;
  const bool is_last = index + 1 == record.count;
  WirePacket packet;
  packet.headers = record.headers;
  packet.headers.psn = record.headers.psn + index;
  if (record.count > 1) {
    packet.headers.opcode =
        make_opcode(record.headers.service(), operation_at(record.headers.operation(), is_first, is_last));
  }
  if (!is_last) {
    packet.headers.ack_request = false;
    packet.headers.solicited = false;
  }
  const uint32_t offset = index * record.path_mtu;
  packet.payload_bytes = is_last ? record.payload_bytes - offset : record.path_mtu;
  packet.headers.pad = roce::padding_of(packet.payload_bytes);
  if (!record.payload.empty()) {
    const uint32_t kept_before = index * std::min(record.path_mtu, record.snap_bytes);
    packet.payload = record.payload.subspan(kept_before, std::min(packet.payload_bytes, record.snap_bytes));
  }
  return packet;
}

}  // namespace verbena::capture
