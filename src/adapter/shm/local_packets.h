// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_writer.h"
#include "adapter/shm/lent_memory.h"
#include "adapter/shm/wide_rings.h"
#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::engine {

// Limits for one entry whose payload stays in the writer's memory (rendezvous). The reader fetches the whole
// payload in one call, while it holds the shard's lock.
inline constexpr uint32_t kMaxLentBytes = 256 * 1024;
inline constexpr uint32_t kMaxLentPackets = 127;

// The properties of a channel between two processes of one host, for the transport layer.
inline constexpr transport::Traits kLocalTraits{
    .max_payload = roce::kMaxPathMtu,
    // No system call is saved, so a burst is just what may be on its way.
    .burst_bytes = 1 << 20,
    .burst_packets = 256,
    .charge_per_packet = 0,
    .joined_bytes = shm::kMaxPayload,
    .lent_bytes = kMaxLentBytes,
    .lent_packets = kMaxLentPackets,
    .joined_messages = transport::kMaxJoinedMessages,
    .carries_acknowledgements = true,
    .lossless = true,
    .progress = transport::Traits::Progress::kDescriptor,
};

// Number of entries in a lane that are reserved for acknowledgements. An acknowledgement must not wait until
// the peer has read the requests in the lane. Our QP may be destroyed meanwhile, and the peer would never
// learn that its messages have arrived.
inline constexpr uint32_t kAcknowledgementEntries = 64;

// Puts packets into a lane: headers as on a network, without UDP and ICRC. When a packet's path differs from
// that of the packet before, the writer first puts an entry with the path. An acknowledgement waits in the
// writer until the next packet to the same QP, and travels in that packet's entry. flush() puts a waiting
// acknowledgement into an entry of its own.
//
// For the shard's lock holder.
class PacketWriter {
 public:
  explicit PacketWriter(shm::Lane& lane) : lane_(lane) {}
  // For a channel of two halves (shm::ChannelHalf). `lane` is in our half. `reader` is the lane in the peer's
  // half, which holds the words that the peer's reader writes.
  PacketWriter(shm::Lane& lane, const shm::Lane& reader) : lane_(lane, reader) {}

  transport::SendStatus send(const transport::OutgoingPacket& packet);
  transport::SendStatus send_plain(const roce::Path& path, const transport::PlainSend& message);
  // Puts the acknowledgement that waits, if any. Returns false if there is no room.
  bool flush() { return !waiting_ || put_waiting(); }
  // Returns whether the next packet finds room, whatever its length.
  bool has_room() const { return lane_.has_room(kRoom); }
  // Asks to be rung when there is room for the next packet. Returns false if there already is.
  bool wait_for_room() { return lane_.wait_for_room(kRoom); }
  shm::LaneWriter& lane() { return lane_; }
  RingUse& ring_use() { return ring_use_; }

 private:
  static constexpr shm::Room kRoom{shm::kMaxPayload, kAcknowledgementEntries};

  struct Waiting {
    roce::Qpn destination;
    transport::Acknowledgement acknowledgement;
  };

  bool put_path(const roce::Path& path);
  bool put_waiting();
  transport::SendStatus put_with_waiting(const transport::OutgoingPacket& packet);
  // `carried`: an acknowledgement that travels in it; null: none.
  template <bool kCarries, uint32_t kSpare = kAcknowledgementEntries>
  transport::SendStatus put(const transport::OutgoingPacket& packet,
                            const transport::Acknowledgement* carried = nullptr);
  template <bool kCarries>
  transport::SendStatus put_plain(const transport::PlainSend& message);
  transport::SendStatus put_lent(const transport::OutgoingPacket& packet,
                                 const transport::Acknowledgement* carried = nullptr);
  template <bool kCarries>
  transport::SendStatus put_messages(const transport::OutgoingPacket& packet,
                                     const transport::Acknowledgement* carried = nullptr);

  shm::LaneWriter lane_;
  std::optional<roce::Path> path_;  // of the last packet
  std::optional<Waiting> waiting_;  // an acknowledgement for the next packet; its path is path_
  RingUse ring_use_;
};

// Takes packets out of a lane. The process that writes the lane is untrusted: packets are checked like those
// from a network. For the shard's lock holder.
class PacketReader {
 public:
  explicit PacketReader(shm::Lane& lane) : lane_(lane) {}
  // For a channel of two halves (shm::ChannelHalf). `lane` is in the peer's half and is only read. `own` is
  // in our half, and holds the words that our reader writes.
  PacketReader(const shm::Lane& lane, shm::Lane& own) : lane_(lane, own) {}

  struct Received {
    uint32_t packets = 0;
    bool must_ring = false;  // the writer waits for room, which there is now: the caller must ring it
  };
  // Reads packets until they have cost `budget`, or the lane is empty. A packet costs one; of messages that
  // share an entry, two cost one. A payload in the peer's memory costs more, by its length.
  // Calls take(IncomingPacket) for each packet. If it is a PlainSend, take_plain(PlainSend, Path) is called
  // first, and take() only if that returns false. Calls refuse(ParseError) for each malformed entry. An
  // acknowledgement in a packet's entry is passed with the packet.
  // Entries that were read may go back to the writer only when many have been read, in a later call that
  // finds nothing, or by give_back(). To give each back at once would cost as much as the packet.
  template <class Take, class TakePlain, class Refuse>
  Received receive(uint32_t budget, Take take, TakePlain take_plain, Refuse refuse) {
    Received received;
    shm::LaneReader::Read read;
    // A path entry may precede each packet, so there may be two entries for each packet. The limit is for a
    // peer that writes only paths, as fast as they are read here: nothing else of this shard would get a
    // turn.
    uint32_t entries = 2 * budget;
    uint32_t cost = 0;
    for (; cost < budget && entries > 0 && lane_.next(read); --entries) {
      if (read.kind == shm::EntryKind::kPath) [[unlikely]] {
        set_path(read.head);
        continue;
      }
      if (shm::is_of_ring(read.kind)) [[unlikely]]
        continue;
      const bool may_be_plain = read.kind == shm::EntryKind::kPacket;
      if (may_be_plain && is_plain(read.head, read.payload) && take_plain(plain_, path_)) {
        ++received.packets;
        ++cost;
      } else if (const auto error = parse(read)) {
        ++received.packets;
        ++cost;
        refuse(*error);
      } else {
        received.packets += packet_count();
        cost += (packet_count() + 1) / 2 + (is_lent_ ? lent_.bytes() / shm::kMaxPayload : 0);
        give(take);
      }
      // The writer may go on while the rest is read.
      if (lane_.is_much_read()) received.must_ring |= lane_.take_back();
    }
    if (received.packets == 0 || lane_.is_much_read()) received.must_ring |= lane_.take_back();
    return received;
  }
  // Sets the memory from which payloads are fetched (rendezvous); null: none can be fetched. `memory` must
  // live until the next call of fetch_from(), or as long as the reader.
  void fetch_from(PeerMemory* memory) { lent_.set_memory(lane_.lane(), memory); }
  // Gives back to the writer all entries that were read. Called when receive() will not be called for a
  // while. Returns true if the caller must ring (wake) the writer, which waits for room.
  bool give_back() { return lane_.take_back(); }
  // Returns whether receive() would find an entry, or give entries back.
  bool has_work() const { return lane_.is_something_there() || lane_.is_anything_read(); }
  shm::LaneReader& lane() { return lane_; }
  // Returns allows(path) for the path of the packets that are being read. The result is cached until the path
  // changes, or `generation` differs from that of the last call. REQUIRES: generation != 0
  template <class Allows>
  bool is_path_allowed(uint32_t generation, Allows allows) {
    if (path_checked_in_ != generation) [[unlikely]] {
      is_path_allowed_ = allows(path_);
      path_checked_in_ = generation;
    }
    return is_path_allowed_;
  }

 private:
  template <class Take>
  void give(Take& take) {
    const uint32_t bytes = roce::header_bytes(packet_.headers.opcode) + roce::kIcrcBytes +
                           static_cast<uint32_t>(packet_.payload.size()) + packet_.headers.pad;
    take(transport::IncomingPacket{packet_, path_, bytes, carries_ ? &carried_ : nullptr, messages_,
                                   is_lent_ ? &lent_ : nullptr});
  }
  // Returns for how many packets the entry that parse() took counts.
  uint32_t packet_count() const { return std::max(static_cast<uint32_t>(messages_.size()), 1u); }
  void set_path(ConstBytes encoded);
  // Parses an entry into packet_, carried_, messages_ and lent_. Returns the error if the entry is malformed,
  // else nullopt.
  std::optional<roce::ParseError> parse(const shm::LaneReader::Read& read);
  bool take_lengths(ConstBytes head, uint32_t count, size_t payload_bytes);
  // Parses an entry of kind kPacket. Returns true if it is a PlainSend, which is then in plain_.
  bool is_plain(ConstBytes head, ConstBytes payload);

  shm::LaneReader lane_;
  roce::Path path_;               // of the packets that follow
  uint32_t path_checked_in_ = 0;  // generation of is_path_allowed_; 0: the path was not checked
  bool is_path_allowed_ = false;
  transport::PlainSend plain_;
  roce::Packet packet_;
  transport::Acknowledgement carried_;  // an acknowledgement that came in the entry of packet_
  bool carries_ = false;                // whether carried_ is valid
  // The lengths of the messages in the entry, in bytes. They lie in the reader's copy.
  std::span<const uint8_t> messages_;
  LentMemory lent_;       // the payload, if it is still in the writer's memory
  bool is_lent_ = false;  // whether lent_ is valid
};

}  // namespace verbena::engine
