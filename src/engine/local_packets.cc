// SPDX-License-Identifier: Apache-2.0
#include "engine/local_packets.h"

#include <array>
#include <cstring>

namespace verbena::engine {
namespace {

using local::EntryKind;
using local::LaneWriter;
using transport::SendStatus;

// A packet's head in its entry: a byte that says how many packets are joined, and whether an acknowledgement
// is carried; that, as PSN and AETH; then BTH and extension headers.
constexpr size_t kCountBytes = 1;
constexpr uint8_t kCarriesAcknowledgement = 0x80;
constexpr size_t kPsnBytes = 3;
constexpr size_t kAcknowledgementBytes = kPsnBytes + roce::kAethBytes;
constexpr uint32_t kLongestHeaders = roce::kBthBytes + roce::kXrcethBytes + roce::kAtomicEthBytes;
static_assert(kCountBytes + kAcknowledgementBytes + kLongestHeaders <= local::kMostHead);

constexpr uint32_t kLeastPathMtu = 256;
constexpr uint32_t kMostJoined = local::kMostPayload / kLeastPathMtu;
static_assert(kMostJoined < kCarriesAcknowledgement);

constexpr uint8_t kAcknowledge = roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge);

// A path in its entry, host byte order. The interface is the receiver's own matter.
struct PathHead {
  std::array<uint8_t, 16> source;
  std::array<uint8_t, 16> destination;
  uint32_t flow_label;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint16_t reserved;
};
static_assert(sizeof(PathHead) == 40 && sizeof(PathHead) <= local::kMostHead);

SendStatus status_of(LaneWriter::Put put) {
  switch (put) {
    case LaneWriter::Put::kDone:
      return SendStatus::kSent;
    case LaneWriter::Put::kFull:
      return SendStatus::kBusy;
    default:
      return SendStatus::kFault;
  }
}

void read_carried(const std::byte* from, roce::Qpn destination, roce::Headers& headers) {
  headers.opcode = kAcknowledge;
  headers.destination = destination;
  headers.psn = roce::Psn(load_be24(from));
  headers.syndrome = static_cast<uint8_t>(from[kPsnBytes]);
  headers.msn = load_be24(from + kPsnBytes + 1);
}

}  // namespace

bool PacketWriter::put_path(const roce::Path& path) {
  const PathHead head{.source = path.source.bytes,
                      .destination = path.destination.bytes,
                      .flow_label = path.flow_label,
                      .traffic_class = path.traffic_class,
                      .hop_limit = path.hop_limit,
                      .reserved = 0};
  if (lane_.put(EntryKind::kPath, std::as_bytes(std::span(&head, 1))) != LaneWriter::Put::kDone) return false;
  path_ = path;
  return true;
}

SendStatus PacketWriter::send(const transport::OutgoingPacket& packet) {
  if (path_ != packet.path) {
    if (!flush() || !put_path(packet.path)) return SendStatus::kBusy;
  }
  if (packet.headers.opcode == kAcknowledge) {
    if (!flush()) return SendStatus::kBusy;
    waiting_ = packet.headers;
    return SendStatus::kSent;
  }
  const bool carries = waiting_ && waiting_->destination == packet.headers.destination &&
                       packet.headers.service() == roce::Service::kRc;
  if (!carries && !flush()) return SendStatus::kBusy;
  const SendStatus status = put(packet, carries ? &*waiting_ : nullptr);
  if (carries && status == SendStatus::kSent) waiting_.reset();
  return status;
}

SendStatus PacketWriter::put(const transport::OutgoingPacket& packet, const roce::Headers* acknowledgement) {
  std::array<std::byte, kCountBytes + kAcknowledgementBytes + roce::kMaxHeaderBytes> head;
  head[0] = static_cast<std::byte>(packet.count);
  size_t bytes = kCountBytes;
  if (acknowledgement != nullptr) {
    head[0] |= std::byte{kCarriesAcknowledgement};
    store_be24(&head[bytes], acknowledgement->psn.value());
    head[bytes + kPsnBytes] = static_cast<std::byte>(acknowledgement->syndrome);
    store_be24(&head[bytes + kPsnBytes + 1], acknowledgement->msn);
    bytes += kAcknowledgementBytes;
  }
  bytes += roce::encode(packet.headers, std::span(head).subspan(bytes));
  return status_of(
      lane_.put(EntryKind::kPacket, std::span(head).first(bytes), packet.payload, packet.payload_bytes));
}

bool PacketWriter::put_waiting() {
  if (put({*path_, *waiting_, {}, 0}, nullptr) != SendStatus::kSent) return false;
  waiting_.reset();
  return true;
}

void PacketReader::set_path(ConstBytes encoded) {
  PathHead head;
  if (encoded.size() != sizeof head) return;  // the packets that follow have the path of those before
  std::memcpy(&head, encoded.data(), sizeof head);
  path_.source.bytes = head.source;
  path_.destination.bytes = head.destination;
  path_.flow_label = head.flow_label & 0xfffff;
  path_.traffic_class = head.traffic_class;
  path_.hop_limit = head.hop_limit;
}

std::optional<roce::ParseError> PacketReader::parse(const local::LaneReader::Read& read) {
  using roce::ParseError;
  if (read.head.empty()) return ParseError::kTruncated;
  const auto first = static_cast<uint8_t>(read.head[0]);
  ConstBytes encoded = read.head.subspan(kCountBytes);
  const bool carries = (first & kCarriesAcknowledgement) != 0;
  if (carries) {
    if (encoded.size() < kAcknowledgementBytes) return ParseError::kTruncated;
    encoded = encoded.subspan(kAcknowledgementBytes);
  }
  const auto headers = roce::parse_headers(encoded);
  if (!headers) return headers.error();
  if (!headers->info().carries_payload && !read.payload.empty()) return ParseError::kUnexpectedPayload;
  const uint32_t count = first & (kCarriesAcknowledgement - 1u);
  const bool is_rc = headers->service() == roce::Service::kRc;
  if (count == 0 || count > kMostJoined || (!is_rc && (count > 1 || carries))) return ParseError::kTruncated;
  packet_.headers = *headers;
  packet_.payload = read.payload;
  packet_.count = count;
  carried_.count = carries ? 1 : 0;
  if (carries) read_carried(&read.head[kCountBytes], headers->destination, carried_.headers);
  return std::nullopt;
}

}  // namespace verbena::engine
