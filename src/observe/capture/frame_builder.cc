// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/frame_builder.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "wire/ethernet/offloads.h"
#include "wire/roce/icrc.h"

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

// The identification of packets of Verbena's own sockets: unconnected, "don't fragment".
constexpr uint16_t kIdentification = 0;

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

FrameBuilder::Frame FrameBuilder::build(const FrameAddresses& addresses, const roce::Path& path,
                                        const WirePacket& packet) {
  const bool ipv4 = path.destination.is_ipv4();
  const uint32_t header_bytes = roce::header_bytes(packet.headers.opcode);
  const uint32_t udp_payload_bytes =
      header_bytes + packet.payload_bytes + packet.headers.pad + roce::kIcrcBytes;

  std::byte* to = frame_.data();
  std::memcpy(to, addresses.destination.data(), addresses.destination.size());
  std::memcpy(to + 6, addresses.source.data(), addresses.source.size());
  store_be<uint16_t>(to + 12, ipv4 ? ethernet::kTypeIpv4 : ethernet::kTypeIpv6);
  to += ethernet::kHeaderBytes;
  if (ipv4) {
    write_ipv4_header(path, udp_payload_bytes, to);
    to += roce::kIpv4HeaderBytes;
  } else {
    write_ipv6_header(path, udp_payload_bytes, to);
    to += roce::kIpv6HeaderBytes;
  }
  store_be<uint16_t>(to, addresses.source_port);
  store_be<uint16_t>(to + 2, roce::kUdpPort);
  store_be<uint16_t>(to + 4, static_cast<uint16_t>(roce::kUdpHeaderBytes + udp_payload_bytes));
  store_be<uint16_t>(to + 6, 0);
  to += roce::kUdpHeaderBytes;

  std::byte* const bth = to;
  std::array<std::byte, roce::kMaxHeaderBytes> headers;
  roce::encode(packet.headers, headers);
  std::memcpy(to, headers.data(), header_bytes);
  to += header_bytes;
  if (!packet.payload.empty()) std::memcpy(to, packet.payload.data(), packet.payload.size());
  to += packet.payload.size();

  Frame frame;
  frame.wire_bytes = static_cast<uint32_t>(bth - frame_.data()) + udp_payload_bytes;
  if (packet.payload.size() == packet.payload_bytes) {
    std::memset(to, 0, packet.headers.pad);
    to += packet.headers.pad;
    const roce::IcrcFlow flow = icrc_flow(path, addresses.source_port, roce::kUdpPort);
    const uint32_t icrc = icrc_of(flow, kIdentification, ConstBytes(bth, static_cast<size_t>(to - bth)));
    std::memcpy(to, &icrc, sizeof icrc);  // least significant byte first
    to += roce::kIcrcBytes;
    const Bytes whole(frame_.data(), static_cast<size_t>(to - frame_.data()));
    if (const auto found = ethernet::parse_headers(whole)) ethernet::fill_checksums(whole, *found);
  }
  frame.bytes = ConstBytes(frame_.data(), static_cast<size_t>(to - frame_.data()));
  return frame;
}

}  // namespace verbena::capture
