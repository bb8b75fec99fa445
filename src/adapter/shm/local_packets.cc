// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/local_packets.h"

#include <array>
#include <cstring>

namespace verbena::engine {
namespace {

using shm::EntryKind;
using shm::LaneWriter;
using transport::Acknowledgement;
using transport::SendStatus;

// A packet's head in its entry: a byte that says how many packets are joined, and whether an acknowledgement
// is carried; that, as PSN and AETH; then BTH and extension headers.
constexpr size_t kCountBytes = 1;
constexpr uint8_t kCarriesAcknowledgement = 0x80;
constexpr size_t kPsnBytes = 3;
constexpr size_t kAcknowledgementBytes = kPsnBytes + roce::kAethBytes;
constexpr uint32_t kLongestHeaders = roce::kBthBytes + roce::kXrcethBytes + roce::kAtomicEthBytes;
static_assert(kCountBytes + kAcknowledgementBytes + kLongestHeaders <= shm::kMaxHead);

constexpr uint32_t kLeastPathMtu = 256;
constexpr uint32_t kMaxJoined = shm::kMaxPayload / kLeastPathMtu;
static_assert(kMaxJoined < kCarriesAcknowledgement);
static_assert(kMaxLentPackets < kCarriesAcknowledgement);
static_assert(queues::kMaxSge * sizeof(shm::LentPiece) <= shm::kMaxPayload);

// Of messages that go together the byte says how many there are, and their lengths, a byte each, follow the
// BTH.
static_assert(kCountBytes + kAcknowledgementBytes + roce::kBthBytes + transport::kMaxJoinedMessages <=
              shm::kMaxHead);
static_assert(transport::kMaxJoinedMessages * transport::kLongestJoinedMessage <= shm::kMaxPayload);
static_assert(transport::kMaxJoinedMessages < kCarriesAcknowledgement);

constexpr uint8_t kSendOnly = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
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
static_assert(sizeof(PathHead) == 40 && sizeof(PathHead) <= shm::kMaxHead);

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

// A SEND or a WRITE, but not what ends one.
bool may_be_lent(const roce::Headers& headers) {
  const roce::OpcodeInfo& info = headers.info();
  return info.is_request && info.carries_payload && !info.ends_message;
}

void write_carried(const transport::Acknowledgement& carried, std::byte* to) {
  store_be24(to, carried.psn.value());
  to[kPsnBytes] = static_cast<std::byte>(carried.syndrome);
  store_be24(to + kPsnBytes + 1, carried.msn);
}

// A head's first byte.
struct Ahead {
  explicit Ahead(std::byte first)
      : count(static_cast<uint8_t>(first) & (kCarriesAcknowledgement - 1u)),
        carries((static_cast<uint8_t>(first) & kCarriesAcknowledgement) != 0) {}
  size_t bytes() const { return kCountBytes + (carries ? kAcknowledgementBytes : 0); }

  uint32_t count;
  bool carries;
};

void read_carried(const std::byte* from, transport::Acknowledgement& carried) {
  carried.psn = roce::Psn(load_be24(from));
  carried.msn = load_be24(from + kPsnBytes + 1);
  carried.syndrome = static_cast<uint8_t>(from[kPsnBytes]);
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
  const roce::Headers& headers = packet.headers;
  if (headers.opcode == kAcknowledge) {
    if (!flush()) return SendStatus::kBusy;
    waiting_ = {headers.destination, {headers.psn, headers.msn, headers.syndrome}};
    return SendStatus::kSent;
  }
  if (waiting_) return put_with_waiting(packet);
  if (packet.lent) [[unlikely]]
    return put_lent(packet, packet.acknowledgement);
  if (!packet.messages.empty()) {
    return packet.acknowledgement != nullptr ? put_messages<true>(packet, packet.acknowledgement)
                                             : put_messages<false>(packet);
  }
  return packet.acknowledgement != nullptr ? put<true>(packet, packet.acknowledgement) : put<false>(packet);
}

SendStatus PacketWriter::send_plain(const roce::Path& path, const transport::PlainSend& message) {
  if (path_ != path || waiting_) [[unlikely]] {
    return as_packet(path, message, [this](const transport::OutgoingPacket& packet) { return send(packet); });
  }
  return message.acknowledgement != nullptr ? put_plain<true>(message) : put_plain<false>(message);
}

template <bool kCarries>
SendStatus PacketWriter::put_plain(const transport::PlainSend& message) {
  constexpr size_t kAhead = kCountBytes + (kCarries ? kAcknowledgementBytes : 0);
  const auto write = [&](std::byte* head) {
    head[0] = static_cast<std::byte>(message.count | (kCarries ? kCarriesAcknowledgement : 0));
    if constexpr (kCarries) write_carried(*message.acknowledgement, head + kCountBytes);
    roce::encode_plain(message.headers, head + kAhead);
  };
  return status_of(lane_.put_with<kAcknowledgementEntries>(EntryKind::kPacket, kAhead + roce::kBthBytes,
                                                           write, {&message.payload, 1},
                                                           static_cast<uint32_t>(message.payload.size())));
}

SendStatus PacketWriter::put_with_waiting(const transport::OutgoingPacket& packet) {
  const roce::Headers& headers = packet.headers;
  const bool is_to_same = waiting_->destination == headers.destination;
  if (!is_to_same || headers.service() != roce::Service::kRc || packet.acknowledgement != nullptr)
    return flush() ? send(packet) : SendStatus::kBusy;
  const Acknowledgement* const waiting = &waiting_->acknowledgement;
  const SendStatus status = packet.lent               ? put_lent(packet, waiting)
                            : packet.messages.empty() ? put<true>(packet, waiting)
                                                      : put_messages<true>(packet, waiting);
  if (status == SendStatus::kSent) waiting_.reset();
  return status;
}

// The head is written where it stays.
template <bool kCarries, uint32_t kSpare>
SendStatus PacketWriter::put(const transport::OutgoingPacket& packet,
                             [[maybe_unused]] const transport::Acknowledgement* carried) {
  constexpr size_t kAhead = kCountBytes + (kCarries ? kAcknowledgementBytes : 0);
  const auto write = [&](std::byte* head) {
    head[0] = static_cast<std::byte>(packet.count | (kCarries ? kCarriesAcknowledgement : 0));
    if constexpr (kCarries) write_carried(*carried, head + kCountBytes);
    roce::encode(packet.headers, {head + kAhead, shm::kMaxHead - kAhead});
  };
  const size_t bytes = kAhead + roce::header_bytes(packet.headers.opcode);
  return status_of(
      lane_.put_with<kSpare>(EntryKind::kPacket, bytes, write, packet.payload, packet.payload_bytes));
}

template <bool kCarries>
SendStatus PacketWriter::put_messages(const transport::OutgoingPacket& packet,
                                      [[maybe_unused]] const transport::Acknowledgement* carried) {
  constexpr size_t kAhead = kCountBytes + (kCarries ? kAcknowledgementBytes : 0);
  const size_t count = packet.messages.size();
  const auto write = [&](std::byte* head) {
    head[0] = static_cast<std::byte>(count | (kCarries ? kCarriesAcknowledgement : 0));
    if constexpr (kCarries) write_carried(*carried, head + kCountBytes);
    roce::encode(packet.headers, {head + kAhead, roce::kBthBytes});
    std::memcpy(head + kAhead + roce::kBthBytes, packet.messages.data(), count);
  };
  const size_t bytes = kAhead + roce::kBthBytes + count;
  return status_of(lane_.put_with<kAcknowledgementEntries>(EntryKind::kMessages, bytes, write, packet.payload,
                                                           packet.payload_bytes));
}

// The payload is the list of where it lies.
SendStatus PacketWriter::put_lent(const transport::OutgoingPacket& packet,
                                  const transport::Acknowledgement* carried) {
  std::array<shm::LentPiece, queues::kMaxSge> list;
  size_t count = 0;
  for (const ConstBytes piece : packet.payload) {
    if (!piece.empty()) list[count++] = {reinterpret_cast<uintptr_t>(piece.data()), piece.size()};
  }
  const size_t ahead = kCountBytes + (carried != nullptr ? kAcknowledgementBytes : 0);
  const auto write = [&](std::byte* head) {
    head[0] = static_cast<std::byte>(packet.count | (carried != nullptr ? kCarriesAcknowledgement : 0));
    if (carried != nullptr) write_carried(*carried, head + kCountBytes);
    roce::encode(packet.headers, {head + ahead, shm::kMaxHead - ahead});
  };
  const ConstBytes pieces = std::as_bytes(std::span(list).first(count));
  return status_of(lane_.put_with<kAcknowledgementEntries>(
      EntryKind::kLentPacket, ahead + roce::header_bytes(packet.headers.opcode), write, {&pieces, 1},
      static_cast<uint32_t>(pieces.size())));
}

bool PacketWriter::put_waiting() {
  const roce::Headers headers = headers_of(waiting_->acknowledgement, waiting_->destination);
  if (put<false, 0>({*path_, headers, {}, 0}) != SendStatus::kSent) return false;
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
  path_checked_in_ = 0;
}

std::optional<roce::ParseError> PacketReader::parse(const shm::LaneReader::Read& read) {
  using roce::ParseError;
  messages_ = {};
  is_lent_ = read.kind == EntryKind::kLentPacket;
  if (read.head.empty()) return ParseError::kTruncated;
  const Ahead ahead(read.head[0]);
  const auto [count, carries] = ahead;
  if (read.head.size() < ahead.bytes()) return ParseError::kTruncated;
  ConstBytes encoded = read.head.subspan(ahead.bytes());
  if (count == 0 || count > (is_lent_ ? kMaxLentPackets : kMaxJoined)) return ParseError::kTruncated;
  if (read.kind == EntryKind::kMessages) {
    if (!take_lengths(encoded, count, read.payload.size())) return ParseError::kTruncated;
    encoded = encoded.first(encoded.size() - count);
  }
  roce::Headers& headers = packet_.headers;
  if (const auto error = roce::parse_headers(encoded, headers)) return error;
  if (!headers.info().carries_payload && !read.payload.empty()) return ParseError::kUnexpectedPayload;
  const bool is_rc = headers.service() == roce::Service::kRc;
  if (!is_rc && (count > 1 || carries)) return ParseError::kTruncated;
  if (!messages_.empty() && (headers.opcode != kSendOnly || headers.solicited)) return ParseError::kTruncated;
  if (is_lent_ && (!is_rc || !may_be_lent(headers) || !lent_.take(read.payload)))
    return ParseError::kTruncated;
  packet_.payload = is_lent_ ? ConstBytes() : read.payload;
  packet_.count = count;
  carries_ = carries;
  if (carries) read_carried(&read.head[kCountBytes], carried_);
  return std::nullopt;
}

bool PacketReader::is_plain(ConstBytes head, ConstBytes payload) {
  if (head.empty()) return false;
  const Ahead ahead(head[0]);
  if (ahead.count == 0 || ahead.count > kMaxJoined) return false;
  if (head.size() != ahead.bytes() + roce::kBthBytes) return false;
  if (!roce::parse_plain(&head[ahead.bytes()], plain_.headers)) return false;
  if (plain_.headers.opcode != transport::PlainSend::kOpcode) return false;
  if (ahead.carries) read_carried(&head[kCountBytes], carried_);
  plain_.acknowledgement = ahead.carries ? &carried_ : nullptr;
  plain_.payload = payload;
  plain_.count = ahead.count;
  return true;
}

// They are the head's last bytes, in the reader's copy of it, and their sum is what there is of payload.
bool PacketReader::take_lengths(ConstBytes head, uint32_t count, size_t payload_bytes) {
  if (count > transport::kMaxJoinedMessages || count > head.size()) return false;
  const ConstBytes lengths = head.last(count);
  size_t sum = 0;
  for (const std::byte length : lengths) sum += static_cast<size_t>(length);
  if (sum != payload_bytes) return false;
  messages_ = {reinterpret_cast<const uint8_t*>(lengths.data()), count};
  return true;
}

}  // namespace verbena::engine
