// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "transport/packet_io.h"

namespace verbena::transport {

// A packet as it was given to the wire.
struct SentPacket {
  roce::Path path;
  roce::Headers headers;
  std::vector<std::byte> payload;
  uint32_t count = 1;

  roce::Operation operation() const { return headers.operation(); }
  uint32_t psn() const { return headers.psn.value(); }
  bool asks() const { return headers.ack_request; }
};

// Keeps what is sent; an acknowledgement that travels in a packet as one of its own. Answers kBusy while
// `room` is 0.
class RecordingSink : public PacketSink {
 public:
  SendStatus send(const OutgoingPacket& packet) override {
    if (room == 0) return SendStatus::kBusy;
    if (room > 0) --room;
    if (packet.acknowledgement != nullptr) {
      const auto acknowledgement = headers_of(*packet.acknowledgement, packet.headers.destination);
      packets.push_back({packet.path, acknowledgement, {}});
    }
    SentPacket sent{packet.path, packet.headers, {}, packet.count};
    for (const ConstBytes piece : packet.payload) {
      sent.payload.insert(sent.payload.end(), piece.begin(), piece.end());
    }
    if (sent.payload.size() != packet.payload_bytes) abort();
    if (packet.headers.pad != roce::padding_of(packet.payload_bytes)) abort();
    packets.push_back(std::move(sent));
    return SendStatus::kSent;
  }

  // Takes the oldest packet not taken yet. REQUIRES: there is one
  SentPacket take() {
    if (packets.empty()) abort();
    SentPacket packet = std::move(packets.front());
    packets.pop_front();
    return packet;
  }

  std::deque<SentPacket> packets;
  int room = -1;  // -1: without end
};

}  // namespace verbena::transport
