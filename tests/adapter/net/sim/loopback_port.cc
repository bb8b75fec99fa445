// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/loopback_port.h"

#include <algorithm>

#include "adapter/memory/guarded.h"

namespace verbena::net {
namespace {

using transport::OutgoingPacket;
using transport::SendStatus;

constexpr uint32_t kRoomBytes = 256 * 1024;
constexpr uint32_t kMaxPackets = 1024;
constexpr uint32_t kLargestPacket = roce::kMaxHeaderBytes + roce::kMaxPathMtu + 3 + roce::kIcrcBytes;

}  // namespace

LoopbackPort::LoopbackPort(PortCounters& counters, uint32_t max_payload)
    : traits_{.max_payload = max_payload,
              .burst_bytes = kRoomBytes / 4,
              .burst_packets = 64,
              .charge_per_packet = 0,
              .lossless = true,
              .progress = transport::Traits::Progress::kAsked},
      counters_(counters),
      room_(std::make_unique<std::byte[]>(kRoomBytes)) {
  sent_.reserve(kMaxPackets);
}

bool LoopbackPort::flush() {
  return used_ + kLargestPacket <= kRoomBytes && sent_.size() < kMaxPackets;
}

SendStatus LoopbackPort::send(const OutgoingPacket& packet) {
  if (!flush()) return SendStatus::kBusy;
  std::byte* const begin = room_.get() + used_;
  std::byte* at = begin + roce::encode(packet.headers, {begin, roce::kMaxHeaderBytes});
  auto copy = [&] {
    for (const ConstBytes piece : packet.payload) at = std::copy(piece.begin(), piece.end(), at);
  };
  if (packet.payload_bytes != 0 && !memory::guarded(copy)) return SendStatus::kFault;
  at = std::fill_n(at, packet.headers.pad + roce::kIcrcBytes, std::byte{0});  // nobody checks this ICRC
  const auto bytes = static_cast<uint32_t>(at - begin);
  sent_.push_back({packet.path, used_, bytes});
  used_ += bytes;
  ++counters_.sent_packets;
  counters_.sent_bytes += bytes;
  return SendStatus::kSent;
}

uint32_t LoopbackPort::receive(PacketHandler& handler, uint32_t budget) {
  uint32_t packets = 0;
  for (; packets < budget && received_ < sent_.size(); ++packets, ++received_) {
    const Sent& sent = sent_[received_];
    ++counters_.received_packets;
    counters_.received_bytes += sent.bytes;
    const auto packet = roce::parse({room_.get() + sent.begins, sent.bytes});
    if (packet) {
      handler.on_packet({*packet, sent.path, sent.bytes});
    } else {
      ++counters_.dropped[static_cast<size_t>(packet.error())];
    }
  }
  if (received_ == sent_.size()) {
    sent_.clear();
    received_ = used_ = 0;
  }
  return packets;
}

}  // namespace verbena::net
