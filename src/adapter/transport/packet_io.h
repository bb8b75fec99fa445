// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "adapter/transport/block_pins.h"
#include "base/bytes.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::transport {

// What an acknowledgement says: how far the sender of it has come, and with what result (AETH).
struct Acknowledgement {
  roce::Psn psn;
  uint32_t msn;
  uint8_t syndrome;
};

// As a packet of its own.
inline roce::Headers headers_of(const Acknowledgement& acknowledgement, roce::Qpn destination) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge);
  headers.destination = destination;
  headers.psn = acknowledgement.psn;
  headers.msn = acknowledgement.msn;
  headers.syndrome = acknowledgement.syndrome;
  return headers;
}

// A packet on its way out. Everything pointed to is only borrowed for the call.
struct OutgoingPacket {
  const roce::Path& path;
  const roce::Headers& headers;         // `pad` is set
  std::span<const ConstBytes> payload;  // pieces of user memory, in order; may fault
  uint32_t payload_bytes;               // their sum
  uint32_t count = 1;                   // of packets that are joined; see Traits::joined_bytes
  // Goes to the same QP, ahead of it. Only by a route that takes it along (Traits::carries_acknowledgements).
  const Acknowledgement* acknowledgement = nullptr;
  // It stands for so many messages of one packet each, of these lengths, one piece of `payload` each; `count`
  // says how many. The headers, but for the PSN and the request to acknowledge, are those of each; these are
  // the first one's, and the last one's. Only by a route that takes them (Traits::joined_messages). Empty: it
  // is a packet.
  std::span<const uint8_t> messages = {};
  // The payload may stay where it is until it is acknowledged, for the receiver to fetch. Only of RC, not of
  // a packet that ends a message, and only while the route says so (DirectAccess::lends()).
  bool lent = false;
  // Others of its size follow, and yet it had better go with a longer one before it than with those.
  bool follows_longer = false;
};

// The headers of one of them, as if it had gone by itself.
inline roce::Headers headers_of_message(const roce::Headers& headers, std::span<const uint8_t> messages,
                                        size_t index) {
  roce::Headers own = headers;
  own.psn = headers.psn + static_cast<uint32_t>(index);
  own.pad = roce::padding_of(messages[index]);
  own.ack_request = headers.ack_request && index + 1 == messages.size();
  return own;
}

// How long each such message may be, in bytes, and how many may go together.
inline constexpr uint32_t kLongestJoinedMessage = 128;
inline constexpr uint32_t kMaxJoinedMessages = 16;
static_assert(kLongestJoinedMessage <= UINT8_MAX);

// A SEND of RC in one packet, or in some that are joined, with nothing but its data: what most messages are
// where they go by memory. It is the packet of these headers, to both ends, but is made, and looked at, at a
// fraction of the cost.
struct PlainSend {
  static constexpr uint8_t kOpcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);

  roce::PlainHeaders headers;                        // of kOpcode; `pad` is set
  ConstBytes payload;                                // outgoing: user memory, and may fault
  uint32_t count = 1;                                // as OutgoingPacket's
  const Acknowledgement* acknowledgement = nullptr;  // as OutgoingPacket's
};

enum class SendStatus : uint8_t {
  kSent,   // on its way, or lost as packets may be
  kBusy,   // no room now: the same packet again later
  kFault,  // the payload's memory is gone: nothing was sent
};

// Which QP has lent its payload, and how it knows the one that is to fetch it.
struct Lender {
  roce::Qpn from;
  roce::Qpn to;
  roce::Psn first_psn;  // that its requests began with
};

// The payload of a packet that came without it, as it stayed in the memory of its sender.
class LentPayload {
 public:
  virtual ~LentPayload() = default;
  virtual uint32_t bytes() const = 0;
  // Gets all of it, into places that have as many bytes together. False: it cannot be got so, and the sender
  // is to send it again in another way; some of it may have been written.
  virtual bool fetch(const Lender& lender, std::span<const ConstBytes> to) = 0;
};

// Calls use(OutgoingPacket) with the packet that the message is.
template <class Use>
auto as_packet(const roce::Path& path, const PlainSend& message, Use use) {
  const roce::Headers headers = headers_of(message.headers);
  return use(OutgoingPacket{.path = path,
                            .headers = headers,
                            .payload = {&message.payload, 1},
                            .payload_bytes = static_cast<uint32_t>(message.payload.size()),
                            .count = message.count,
                            .acknowledgement = message.acknowledgement});
}

// Packets of one message that follow each other and are alike: Middles, of a whole path MTU each. To make
// them together costs each a fraction of what it costs alone; they leave as if they had been sent one by one.
struct PacketTrain {
  const roce::Path& path;
  // The first one's; but the request to acknowledge is the last one's. The opcode has no extension headers.
  roce::PlainHeaders headers;
  const std::byte* payload;  // of all, one behind the other; user memory, and may fault
  uint32_t packet_payload;   // of each, in bytes: a multiple of four
  uint32_t count;
  // If there are some: by way of these a port may keep what it has made of them as it is, and send it without
  // a copy. Until the PSN behind all of them is acknowledged, or that behind the message's last packet, if it
  // comes next.
  BlockPins* pins = nullptr;
  bool before_last = false;

  // Of those from `index` on, at most so many.
  PacketTrain part(uint32_t index, uint32_t most) const {
    PacketTrain rest = *this;
    rest.headers.psn = headers.psn + index;
    rest.payload = payload + size_t{index} * packet_payload;
    rest.count = std::min(count - index, most);
    rest.headers.ack_request = headers.ack_request && index + rest.count == count;
    rest.before_last = before_last && index + rest.count == count;
    return rest;
  }
  roce::Psn pinned_until() const { return headers.psn + count + (before_last ? 1 : 0); }
};
// How many of them were sent, the first ones, and why not all.
struct TrainSent {
  uint32_t packets = 0;
  SendStatus status = SendStatus::kSent;
};

// Where transport puts packets. A net::Port is one; so is the simulator's wire.
class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual SendStatus send(const OutgoingPacket& packet) = 0;
  virtual SendStatus send_plain(const roce::Path& path, const PlainSend& message) {
    return as_packet(path, message, [this](const OutgoingPacket& packet) { return send(packet); });
  }

  virtual TrainSent send_train(const PacketTrain& train) {
    for (uint32_t i = 0; i < train.count; ++i) {
      const PacketTrain one = train.part(i, 1);
      const roce::Headers headers = headers_of(one.headers);
      const ConstBytes payload(one.payload, one.packet_payload);
      const SendStatus status = send({.path = one.path,
                                      .headers = headers,
                                      .payload = {&payload, 1},
                                      .payload_bytes = one.packet_payload});
      if (status != SendStatus::kSent) return {i, status};
    }
    return {train.count, SendStatus::kSent};
  }

  // Where what is sent lies until the receiver's process takes it: how much has been put there so far
  // (free-running), and whether the receiver has taken that much. Of a network nobody knows what lies in it.
  virtual uint32_t put_so_far() const { return 0; }
  virtual bool is_taken(uint32_t /*so_far*/) const { return true; }
};

// A packet that came in: parsed, its ICRC good. Borrowed for the call.
struct IncomingPacket {
  const roce::Packet& packet;
  const roce::Path& path;  // as the sender used it: source is the sender
  uint32_t udp_bytes;      // length of the UDP payload, ICRC included: what a GRH's payload length says
  const Acknowledgement* acknowledgement = nullptr;  // came ahead of it, from the same QP
  // As OutgoingPacket::messages; they lie one behind the other in the packet's payload.
  std::span<const uint8_t> messages = {};
  LentPayload* lent = nullptr;  // in place of the packet's, which has none
  uint16_t source_port = 0;     // UDP's; 0: it came by another route

  uint32_t payload_bytes() const {
    return lent != nullptr ? lent->bytes() : static_cast<uint32_t>(packet.payload.size());
  }
};

}  // namespace verbena::transport
