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

// Of one entry whose payload is lent. It is fetched at once, with the shard's lock held.
inline constexpr uint32_t kMaxLentBytes = 256 * 1024;
inline constexpr uint32_t kMaxLentPackets = 127;

// What a channel between two processes of a host is like for transport.
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

// Entries of a lane that only acknowledgements take. They must not wait until requests are read: a QP may be
// destroyed meanwhile, and its peer would not learn that what it sent has arrived.
inline constexpr uint32_t kAcknowledgementEntries = 64;

// Puts packets into a lane: headers as on a network, without UDP and ICRC. The path of a packet goes ahead of
// it as an entry of its own, when it is another one than that of the packet before. An acknowledgement waits
// for the next packet to the same QP, into whose entry it goes, or for flush().
//
// For the shard's lock holder, as PacketReader.
class PacketWriter {
 public:
  explicit PacketWriter(shm::Lane& lane) : lane_(lane) {}
  // With the words of the reader elsewhere (shm::ChannelHalf).
  PacketWriter(shm::Lane& lane, const shm::Lane& reader) : lane_(lane, reader) {}

  transport::SendStatus send(const transport::OutgoingPacket& packet);
  transport::SendStatus send_plain(const roce::Path& path, const transport::PlainSend& message);
  // Nothing waits any more. False: there is no room.
  bool flush() { return !waiting_ || put_waiting(); }
  // Whether the next packet finds room, however long it is.
  bool has_room() const { return lane_.has_room(kRoom); }
  // Asks to be rung when there is more. False: there is room for it.
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
  std::optional<roce::Path> path_;  // of the packet before
  std::optional<Waiting> waiting_;  // by that path
  RingUse ring_use_;
};

// Takes packets out of a lane. The process that writes it is not trusted: what comes out is as what comes
// from a network.
class PacketReader {
 public:
  explicit PacketReader(shm::Lane& lane) : lane_(lane) {}
  // With its own words elsewhere (shm::ChannelHalf).
  PacketReader(const shm::Lane& lane, shm::Lane& own) : lane_(lane, own) {}

  struct Received {
    uint32_t packets = 0;
    bool must_ring = false;  // the other waits for room that there is now
  };
  // Calls take(IncomingPacket) for each packet that is there, or take_plain(PlainSend, Path) if it is such
  // and that answers true, at most `budget`, where messages that came as one count for half as many, and
  // refuse(ParseError) for each that is none. An acknowledgement that came in the same entry is taken with
  // the packet. What was read may be given back to the other only by the next call, if that finds nothing, or
  // by give_back(): to tell it of each packet would cost as much as the packet.
  template <class Take, class TakePlain, class Refuse>
  Received receive(uint32_t budget, Take take, TakePlain take_plain, Refuse refuse) {
    Received received;
    shm::LaneReader::Read read;
    // Each packet may have a path ahead of it. One who puts paths and no packets can put them as fast as they
    // are read here, where nothing else has its turn.
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
      // The other may go on while the rest is read.
      if (lane_.is_much_read()) received.must_ring |= lane_.take_back();
    }
    if (received.packets == 0 || lane_.is_much_read()) received.must_ring |= lane_.take_back();
    return received;
  }
  // What is lent lies in this memory from now on; null: it cannot be fetched. It outlives the reader, or this
  // is called again.
  void fetch_from(PeerMemory* memory) { lent_.set_memory(lane_.lane(), memory); }
  // Before nobody calls receive() for a while. True: the other is to be rung.
  bool give_back() { return lane_.take_back(); }
  // Whether receive() would find something, or give something back.
  bool has_work() const { return lane_.is_something_there() || lane_.is_anything_read(); }
  shm::LaneReader& lane() { return lane_; }
  // Whether allows(path) holds for the path of the packets that are read now. Calls it again only after that
  // path, or `generation`, has changed. REQUIRES: generation != 0
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
  // What parse() has filled in counts for so many.
  uint32_t packet_count() const { return std::max(static_cast<uint32_t>(messages_.size()), 1u); }
  void set_path(ConstBytes encoded);
  // Fills in packet_, and what it carries, unless it answers why not.
  std::optional<roce::ParseError> parse(const shm::LaneReader::Read& read);
  bool take_lengths(ConstBytes head, uint32_t count, size_t payload_bytes);
  // Of an entry with a packet. True: it is a PlainSend, and plain_ says what it says.
  bool is_plain(ConstBytes head, ConstBytes payload);

  shm::LaneReader lane_;
  roce::Path path_;               // of the packets that follow
  uint32_t path_checked_in_ = 0;  // generation of is_path_allowed_; 0: the path was not checked
  bool is_path_allowed_ = false;
  transport::PlainSend plain_;
  roce::Packet packet_;
  transport::Acknowledgement carried_;  // an acknowledgement that came before it
  bool carries_ = false;                // whether there is one
  std::span<const uint8_t> messages_;   // that it stands for; they lie in the reader's copy
  LentMemory lent_;                     // that it came without
  bool is_lent_ = false;                // whether it did
};

}  // namespace verbena::engine
