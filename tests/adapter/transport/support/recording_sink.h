// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "adapter/transport/packet_io.h"

namespace verbena::transport {

// A packet as the transport passed it to the wire.
struct SentPacket {
  roce::Path path;
  roce::Headers headers;
  std::vector<std::byte> payload;
  uint32_t count = 1;
  bool is_followed = false;  // a further message of the same batch follows
  bool lent = false;         // rendezvous: its payload stays in the sender's memory

  roce::Operation operation() const { return headers.operation(); }
  uint32_t psn() const { return headers.psn.value(); }
  bool asks() const { return headers.ack_request; }
};

// Records packets. An acknowledgement that travels with a packet is recorded as a packet of its own, and so
// are the messages of a batch. Returns kBusy while `room` is 0.
class RecordingSink : public PacketSink {
 public:
  SendStatus send(const OutgoingPacket& packet) override {
    const int wanted = std::max(static_cast<int>(packet.messages.size()), 1);
    if (room >= 0 && room < wanted) return SendStatus::kBusy;
    if (room > 0) room -= wanted;
    if (packet.acknowledgement != nullptr) {
      const auto acknowledgement = headers_of(*packet.acknowledgement, packet.headers.destination);
      packets.push_back({packet.path, acknowledgement, {}});
    }
    if (!packet.messages.empty()) return send_messages(packet);
    SentPacket sent{packet.path, packet.headers, {}, packet.count};
    for (const ConstBytes piece : packet.payload) {
      sent.payload.insert(sent.payload.end(), piece.begin(), piece.end());
    }
    sent.lent = packet.lent;
    if (packet.follows_longer) following.push_back(packet.headers.psn.value());
    if (sent.payload.size() != packet.payload_bytes) abort();
    if (packet.headers.pad != roce::padding_of(packet.payload_bytes)) abort();
    packets.push_back(std::move(sent));
    return SendStatus::kSent;
  }

  SendStatus send_messages(const OutgoingPacket& packet) {
    uint32_t bytes = 0;
    if (packet.count != packet.messages.size() || packet.payload.size() != packet.count) abort();
    if (faults) return SendStatus::kFault;
    for (size_t i = 0; i < packet.messages.size(); ++i) {
      const ConstBytes piece = packet.payload[i];
      if (piece.size() != packet.messages[i]) abort();
      bytes += packet.messages[i];
      packets.push_back({packet.path,
                         headers_of_message(packet.headers, packet.messages, i),
                         {piece.begin(), piece.end()},
                         1,
                         i + 1 < packet.messages.size()});
    }
    if (bytes != packet.payload_bytes) abort();
    together.push_back(packet.count);
    return SendStatus::kSent;
  }

  TrainSent send_train(const PacketTrain& train) override {
    trains.push_back(train.count);
    const TrainSent sent = PacketSink::send_train(train);
    const PacketTrain first = train.part(0, sent.packets);
    if (sent.packets > 0 && train.pins != nullptr) train.pins->hold(first.pinned_until(), BlockPin(block));
    return sent;
  }

  uint32_t put_so_far() const override { return lying; }
  bool is_taken(uint32_t so_far) const override { return looked >= so_far; }

  // Removes and returns the oldest packet. REQUIRES: there is one.
  SentPacket take() {
    if (packets.empty()) abort();
    SentPacket packet = std::move(packets.front());
    packets.pop_front();
    return packet;
  }

  std::deque<SentPacket> packets;
  std::vector<uint32_t> together;   // number of messages in each batch
  std::vector<uint32_t> following;  // PSNs of packets with `follows_longer`
  std::vector<uint32_t> trains;     // lengths of the packet trains passed to send_train()
  BlockPin::Count block = std::make_shared<std::atomic<uint32_t>>(0);  // the block that all trains lie in
  int room = -1;        // number of packets that fit; -1: unlimited
  bool faults = false;  // batches fail with kFault
  uint32_t lying = 0;   // amount put into the route
  uint32_t looked = 0;  // amount that the receiver has taken
};

}  // namespace verbena::transport
