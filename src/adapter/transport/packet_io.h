// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Pins one block of a port's memory while packets in flight may refer to it. A pin may outlive the port, and
// any thread may drop it.
class BlockPin {
 public:
  // Number of pins on a block; the shared pointer also keeps the block's memory alive.
  using Count = std::shared_ptr<std::atomic<uint32_t>>;

  BlockPin() = default;
  explicit BlockPin(Count count) : count_(std::move(count)) {
    count_->fetch_add(1, std::memory_order_relaxed);
  }
  BlockPin(BlockPin&& other) noexcept = default;
  BlockPin& operator=(BlockPin&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~BlockPin() {
    if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_release);
  }

  explicit operator bool() const { return count_ != nullptr; }
  // Returns another pin on the same block.
  BlockPin again() const { return BlockPin(count_); }
  bool is_of_block_of(const BlockPin& other) const { return count_ == other.count_; }

 private:
  Count count_;
};

// Pins the blocks that a requester's packets are sent from without a copy, until these packets are
// acknowledged. After that the receiver has the packets: copies still in flight are duplicates, whose
// contents do not matter.
//
// Threads: the caller holds the lock of the requester's shard.
class BlockPins {
 public:
  static constexpr uint32_t kMax = 64;

  // Keeps a pin on a block until everything before `until` is acknowledged. `until` is the PSN after the last
  // packet that is sent from the block. Returns false if kMax blocks are pinned or memory has run out.
  // REQUIRES: `until` never decreases
  bool hold(roce::Psn until, const BlockPin& pin) noexcept {
    if (count_ > 0 && at(count_ - 1).pin.is_of_block_of(pin)) {
      at(count_ - 1).until = until;
      return true;
    }
    if (held_ == nullptr) held_.reset(new (std::nothrow) std::array<Held, kMax>);
    if (held_ == nullptr || count_ == kMax) return false;
    at(count_++) = {until, pin.again()};
    return true;
  }
  // Drops the pins that are no longer needed: all PSNs before `unacked` are acknowledged.
  void release_before(roce::Psn unacked) {
    while (count_ > 0 && !unacked.is_before(at(0).until)) release_first();
  }
  void clear() {
    while (count_ > 0) release_first();
  }
  uint32_t count() const { return count_; }

 private:
  struct Held {
    roce::Psn until;
    BlockPin pin;
  };
  Held& at(uint32_t index) { return (*held_)[(first_ + index) % kMax]; }
  void release_first() {
    at(0).pin = BlockPin();
    first_ = (first_ + 1) % kMax;
    --count_;
  }

  std::unique_ptr<std::array<Held, kMax>> held_;  // allocated on first use: few requesters need it
  uint32_t first_ = 0;
  uint32_t count_ = 0;
};

// An acknowledgement or NAK (AETH): PSN and MSN tell the responder's progress, the syndrome tells ACK or NAK.
struct Acknowledgement {
  roce::Psn psn;
  uint32_t msn;
  uint8_t syndrome;
};

// Returns the headers of the packet if the acknowledgement is sent in a packet of its own.
inline roce::Headers headers_of(const Acknowledgement& acknowledgement, roce::Qpn destination) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge);
  headers.destination = destination;
  headers.psn = acknowledgement.psn;
  headers.msn = acknowledgement.msn;
  headers.syndrome = acknowledgement.syndrome;
  return headers;
}

// An outgoing packet. Everything that it points to is valid only during the call. Reading the payload may
// fault, as the program may have unmapped it; the packet's SendStatus is then kFault.
struct OutgoingPacket {
  const roce::Path& path;
  const roce::Headers& headers;         // `pad` is set
  std::span<const ConstBytes> payload;  // pieces of user memory, in order; reading them may fault
  uint32_t payload_bytes;               // their sum
  uint32_t count = 1;                   // packets in a super-packet; see Traits::joined_bytes
  // An acknowledgement to the same QP, to be sent before the packet. Only on routes with
  // Traits::carries_acknowledgements.
  const Acknowledgement* acknowledgement = nullptr;
  // Lengths of the messages, if this is a batch of `count` messages; empty for an ordinary packet. Each
  // message has one packet and one piece of `payload`. The messages share `headers`: `psn` is that of the
  // first, `ack_request` that of the last, and `pad` is not used. headers_of_message() returns the headers of
  // each. Only on routes with Traits::joined_messages.
  std::span<const uint8_t> messages = {};
  // Rendezvous: the payload may stay in the sender's memory until it is acknowledged, and the receiver
  // fetches it from there. Only for RC, not for the last packet of a message, and only while the route allows
  // it (DirectAccess::lends()).
  bool lent = false;
  // Hint for batching: this packet should end the batch of the longer packet before it. Without the hint, it
  // would begin a new batch if more packets of its size follow, for them to join.
  bool follows_longer = false;
};

// Returns the headers that message `index` of a batch would have if it were sent alone.
inline roce::Headers headers_of_message(const roce::Headers& headers, std::span<const uint8_t> messages,
                                        size_t index) {
  roce::Headers own = headers;
  own.psn = headers.psn + static_cast<uint32_t>(index);
  own.pad = roce::padding_of(messages[index]);
  own.ack_request = headers.ack_request && index + 1 == messages.size();
  return own;
}

// Max length of a message in a batch, in bytes, and max number of messages.
inline constexpr uint32_t kLongestJoinedMessage = 128;
inline constexpr uint32_t kMaxJoinedMessages = 16;
static_assert(kLongestJoinedMessage <= UINT8_MAX);

// A SEND of RC in one packet or super-packet, without immediate data or invalidation. Most messages over
// shared memory are such SENDs. A PlainSend stands for a packet with these headers, but is cheaper to build
// and to examine than an OutgoingPacket or IncomingPacket.
struct PlainSend {
  static constexpr uint8_t kOpcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);

  roce::PlainHeaders headers;                        // of kOpcode; `pad` is set
  ConstBytes payload;                                // outgoing: user memory; reading it may fault
  uint32_t count = 1;                                // as in OutgoingPacket
  const Acknowledgement* acknowledgement = nullptr;  // as in OutgoingPacket
};

enum class SendStatus : uint8_t {
  kSent,   // sent; may be lost on the way, as any packet
  kBusy,   // the route is full: retry the same packet later
  kFault,  // the payload's memory cannot be read: nothing was sent
};

// A requester's connection to its responder: both QPNs, and the first PSN of the requests.
struct Connection {
  roce::Qpn from;
  roce::Qpn to;
  roce::Psn first_psn;  // of the first request
};

// Rendezvous payload of an incoming packet: still in its sender's memory.
class LentPayload {
 public:
  virtual ~LentPayload() = default;
  virtual uint32_t bytes() const = 0;
  // Copies the whole payload to `to`, whose pieces have bytes() bytes in total. `connection` is the one that
  // the packet belongs to. Returns false if the payload cannot be fetched. A part of `to` may have been
  // written in this case, and the sender must send the payload in a packet.
  virtual bool fetch(const Connection& connection, std::span<const ConstBytes> to) = 0;
};

// Calls use(OutgoingPacket) with the message as a packet, and returns the result.
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

// A packet train to be sent: consecutive Middle packets of one message, each with a full path MTU of payload.
// Building them together is cheaper than building each of them. They leave as if sent one by one.
// (congestion::PacketTrain records one that was sent.)
struct PacketTrain {
  const roce::Path& path;
  // Headers of the first packet, except ack_request, which is that of the last packet. The opcode has no
  // extension headers.
  roce::PlainHeaders headers;
  const std::byte* payload;  // of all packets, contiguous; user memory: reading it may fault
  uint32_t packet_payload;   // bytes per packet: a multiple of four
  uint32_t count;
  // If not null, the port may send the packets from its own blocks without a copy, and pins these blocks
  // here. They stay pinned until all packets of the train are acknowledged. `before_last`: the message's last
  // packet follows the train, and the blocks stay pinned until it is acknowledged, too.
  BlockPins* pins = nullptr;
  bool before_last = false;

  // Returns the part of the train that begins at packet `index` and has at most `most` packets.
  PacketTrain part(uint32_t index, uint32_t most) const {
    PacketTrain rest = *this;
    rest.headers.psn = headers.psn + index;
    rest.payload = payload + size_t{index} * packet_payload;
    rest.count = std::min(count - index, most);
    rest.headers.ack_request = headers.ack_request && index + rest.count == count;
    rest.before_last = before_last && index + rest.count == count;
    return rest;
  }
  // The blocks of the train stay pinned until everything before this PSN is acknowledged.
  roce::Psn pinned_until() const { return headers.psn + count + (before_last ? 1 : 0); }
};
// Result of sending a train: the number of packets sent, from the first on, and why the next one was not.
struct TrainSent {
  uint32_t packets = 0;
  SendStatus status = SendStatus::kSent;
};

// Takes the packets that the transport services send: a net::Port, the channel to another process, or the
// simulator's wire. Never waits: a full sink returns SendStatus::kBusy.
class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual SendStatus send(const OutgoingPacket& packet) = 0;
  // Sends a PlainSend along `path`, with the effect of sending the packet that it replaces.
  virtual SendStatus send_plain(const roce::Path& path, const PlainSend& message) {
    return as_packet(path, message, [this](const OutgoingPacket& packet) { return send(packet); });
  }

  // Sends the packets of a train in order, until one cannot be sent.
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

  // Tell whether the receiving process has taken the packets that were sent over shared memory. put_so_far()
  // returns the number of entries written to the channel's ring so far, which wraps. is_taken(n) returns
  // whether the receiver has taken the first `n` entries, or has ended. On a network, is_taken() always
  // returns true.
  virtual uint32_t put_so_far() const { return 0; }
  virtual bool is_taken(uint32_t /*so_far*/) const { return true; }
};

// An incoming packet: parsed, with a valid ICRC. Everything that it points to is valid only during the call.
struct IncomingPacket {
  const roce::Packet& packet;
  const roce::Path& path;  // as the sender used it: source is the sender
  uint32_t udp_bytes;      // length of the UDP payload with ICRC: the payload length of a GRH
  const Acknowledgement* acknowledgement = nullptr;  // came ahead of the packet, from the same QP
  // As in OutgoingPacket; the messages are contiguous in the packet's payload.
  std::span<const uint8_t> messages = {};
  LentPayload* lent = nullptr;  // rendezvous payload; the packet has none then
  uint16_t source_port = 0;     // UDP source port; 0 if the packet came by another route

  uint32_t payload_bytes() const {
    return lent != nullptr ? lent->bytes() : static_cast<uint32_t>(packet.payload.size());
  }
};

// The functions below return numbers of octets as port counters count them: everything between the packet
// delimiters (IBTA volume 1, 16.1.3.5). For RoCEv2 that is from the IP header to the ICRC, as in the byte
// counters of the kernel's rxe. Messages over shared memory count as the packets that they replace.

// Octets of a packet with a BTH and no payload.
inline uint32_t least_octets(const roce::Path& path) {
  return (path.destination.is_ipv4() ? roce::kIpv4HeaderBytes : roce::kIpv6HeaderBytes) +
         roce::kUdpHeaderBytes + roce::kBthBytes + roce::kIcrcBytes;
}

// Bytes of a payload with its padding to a multiple of four.
constexpr uint32_t padded(uint32_t payload_bytes) {
  return (payload_bytes + 3) & ~3u;
}

// Octets of `count` packets of one message; the first one has the extension headers.
inline uint64_t octets_of(const roce::Path& path, uint8_t opcode, uint32_t payload_bytes,
                          uint32_t count = 1) {
  return uint64_t{count} * least_octets(path) + (roce::header_bytes(opcode) - roce::kBthBytes) +
         padded(payload_bytes);
}

// Octets of an acknowledgement that travels in another packet.
inline uint32_t octets_of(const roce::Path& path, const Acknowledgement*) {
  return least_octets(path) + roce::kAethBytes;
}

// Octets of a batch of messages.
inline uint64_t octets_of(const roce::Path& path, uint8_t opcode, std::span<const uint8_t> messages) {
  uint64_t payload = 0;
  for (const uint8_t bytes : messages) payload += padded(bytes);
  return messages.size() * octets_of(path, opcode, 0) + payload;
}

inline uint64_t octets_of(const OutgoingPacket& packet) {
  const uint8_t opcode = packet.headers.opcode;
  const uint64_t octets = packet.messages.empty()
                              ? octets_of(packet.path, opcode, packet.payload_bytes, packet.count)
                              : octets_of(packet.path, opcode, packet.messages);
  return octets + (packet.acknowledgement != nullptr ? octets_of(packet.path, packet.acknowledgement) : 0);
}

inline uint64_t octets_of(const IncomingPacket& incoming) {
  const uint8_t opcode = incoming.packet.headers.opcode;
  const uint64_t octets =
      incoming.messages.empty()
          ? octets_of(incoming.path, opcode, incoming.payload_bytes(), incoming.packet.count)
          : octets_of(incoming.path, opcode, incoming.messages);
  return octets +
         (incoming.acknowledgement != nullptr ? octets_of(incoming.path, incoming.acknowledgement) : 0);
}

inline uint64_t octets_of(const roce::Path& path, const PlainSend& message) {
  const auto bytes = static_cast<uint32_t>(message.payload.size());
  return octets_of(path, PlainSend::kOpcode, bytes, message.count) +
         (message.acknowledgement != nullptr ? octets_of(path, message.acknowledgement) : 0);
}

}  // namespace verbena::transport
