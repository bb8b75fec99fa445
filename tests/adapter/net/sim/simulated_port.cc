// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/simulated_port.h"

#include <algorithm>

#include "adapter/memory/guarded.h"
#include "adapter/net/sim/simulated_network.h"
#include "wire/roce/icrc.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/packet.h"

namespace verbena::net {
namespace {

using transport::OutgoingPacket;
using transport::SendStatus;

// The first of the dynamic ports that RoCEv2 senders use.
constexpr uint16_t kFirstSourcePort = 0xc000;
// Maximum number of segments of a super-packet. The kernel numbers them from 0.
constexpr uint16_t kMaxSegments = 64;
constexpr uint32_t kLeastBytes = roce::kBthBytes + roce::kIcrcBytes;

uint32_t copy_payload(uint32_t state, std::byte* to, const OutgoingPacket& packet) {
  for (const ConstBytes piece : packet.payload) {
    state = roce::crc_copy(state, to, piece);
    to += piece.size();
  }
  return state;
}

}  // namespace

SendStatus SimulatedPort::send(const OutgoingPacket& packet) {
  if (network_.chance(network_.conditions_.busy)) return SendStatus::kBusy;
  Frame* frame = network_.frames_.get();
  if (!fill(*frame, packet)) {
    network_.frames_.put(frame);
    return SendStatus::kFault;
  }
  ++counters_.sent_packets;
  counters_.sent_bytes += frame->length;
  network_.dispatch(*this, frame);
  return SendStatus::kSent;
}

void SimulatedPort::set_link(const LinkSettings& settings, uint64_t seed) {
  link_ = std::make_shared<LinkModel>(settings, seed, network_.now());
}

bool SimulatedPort::flush() {
  segment_ = 0;
  return true;
}

void SimulatedPort::set_path(const roce::Path& path) {
  path_ = path;
  flow_ = roce::icrc_flow(path, kFirstSourcePort, roce::kUdpPort);
}

// Encodes a packet as it would leave a UDP socket. False: its payload faulted.
bool SimulatedPort::fill(Frame& frame, const OutgoingPacket& packet) {
  if (!(path_ == packet.path)) set_path(packet.path);
  flow_.source_port = static_cast<uint16_t>(kFirstSourcePort + packet.headers.destination.slot());
  frame.path = path_;
  frame.flow = flow_;
  std::byte* at = frame.bytes.data();
  const uint32_t header_bytes = roce::encode(packet.headers, {at, roce::kMaxHeaderBytes});
  frame.length = header_bytes + packet.payload_bytes + packet.headers.pad + roce::kIcrcBytes;
  const uint16_t identification = flow_.ipv6 ? uint16_t{0} : segment_;
  segment_ = static_cast<uint16_t>((segment_ + 1) % kMaxSegments);

  uint32_t state = roce::icrc_begin(flow_, frame.length, identification);
  state = roce::icrc_headers(state, {at, header_bytes});
  at += header_bytes;
  if (packet.payload_bytes != 0) {
    if (!memory::guarded([&] { state = copy_payload(state, at, packet); })) return false;
    at += packet.payload_bytes;
  }
  if (packet.headers.pad != 0) {
    std::fill_n(at, packet.headers.pad, std::byte{0});
    state = roce::crc_update(state, {at, packet.headers.pad});
    at += packet.headers.pad;
  }
  roce::icrc_store(state, at);
  return true;
}

uint32_t SimulatedPort::receive(PacketHandler& handler, uint32_t budget) {
  uint32_t packets = 0;
  while (packets < budget) {
    Frame* frame = pending_.take(network_.now());
    if (frame == nullptr) break;
    ++packets;
    take(handler, *frame);
    network_.frames_.put(frame);
  }
  return packets;
}

void SimulatedPort::take(PacketHandler& handler, const Frame& frame) {
  ++counters_.received_packets;
  counters_.received_bytes += frame.length;
  const auto drop = [this](DropReason reason) { ++counters_.dropped[static_cast<size_t>(reason)]; };
  if (frame.length < kLeastBytes) return drop(DropReason::kTruncated);
  if (roce::icrc_check(frame.flow, frame.udp_payload(), 0) == roce::IcrcCheck::kBad) {
    return drop(DropReason::kBadIcrc);
  }
  const auto packet = roce::parse(frame.udp_payload());
  if (!packet) return drop(static_cast<DropReason>(packet.error()));
  handler.on_packet({*packet, frame.path, frame.length});
}

}  // namespace verbena::net
