// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/owner_peer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "adapter/xrc/peer_messages.h"

namespace verbena::engine {
namespace {

RequestMessage message_about(const transport::QueuePair& target) {
  const transport::QpAttributes& attributes = target.attributes();
  RequestMessage message{};
  message.magic = kPeerMagic;
  message.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  message.min_rnr_timer = attributes.min_rnr_timer;
  message.qpn = target.config().qpn.value();
  message.requester = attributes.destination.value();
  message.access = attributes.access;
  message.path_mtu = attributes.path_mtu;
  message.flow_label = attributes.path.flow_label;
  message.interface_index = attributes.path.interface_index;
  message.traffic_class = attributes.path.traffic_class;
  message.hop_limit = attributes.path.hop_limit;
  std::ranges::copy(attributes.path.source.bytes, message.source);
  std::ranges::copy(attributes.path.destination.bytes, message.destination);
  return message;
}

// Whether the event is one that an owner may report as a failure of the target.
bool is_failure(uint32_t event) {
  return event == IBV_EVENT_QP_ACCESS_ERR || event == IBV_EVENT_QP_REQ_ERR || event == IBV_EVENT_QP_FATAL;
}

iovec piece_of(const void* data, size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

}  // namespace

bool OwnerPeer::pass(const transport::ForwardedRequest& request) {
  RequestMessage message = message_about(request.target);
  message.type = PeerMessage::kRequest;
  message.repeated = request.repeated ? 1 : 0;
  message.run = request.run;
  message.msn = request.msn;
  // Encoded as on the wire. The owner must answer every request; the target decides what the requester is
  // told.
  roce::Headers headers = request.packet.headers;
  headers.ack_request = true;
  const ConstBytes payload = request.packet.payload;
  headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
  std::array<std::byte, roce::kMaxHeaderBytes> encoded;
  const uint32_t bytes = roce::encode(headers, encoded);
  constexpr std::byte kNothing[3 + roce::kIcrcBytes]{};
  const iovec pieces[] = {piece_of(&message, sizeof message), piece_of(encoded.data(), bytes),
                          piece_of(payload.data(), payload.size()),
                          piece_of(kNothing, headers.pad + roce::kIcrcBytes)};
  return say(pieces);
}

void OwnerPeer::end(roce::Qpn target) {
  RequestMessage message{};
  message.magic = kPeerMagic;
  message.type = PeerMessage::kEnd;
  message.qpn = target.value();
  const iovec piece = piece_of(&message, sizeof message);
  // If there is no room for the message, the link is ended: that ends everything there.
  if (!say({&piece, 1})) link().lose();
}

bool OwnerPeer::take(ConstBytes bytes) {
  AnswerMessage message;
  if (bytes.size() != sizeof message) return false;
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.magic != kPeerMagic || message.type != PeerMessage::kAnswer) return false;
  transport::QueuePair* target =
      message.qpn <= roce::Qpn::kMask ? shard_.find(roce::Qpn(message.qpn)) : nullptr;
  // The target may be gone, and its number another QP's.
  const bool is_ours =
      target != nullptr && target->config().owners == &owners_ && target->config().xrc_domain == key().domain;
  if (!is_ours) return true;
  transport::OwnerAnswer answer;
  answer.owner = key().slot;
  answer.run = message.run;
  answer.syndrome = message.syndrome;
  answer.psn = roce::Psn(message.psn);
  answer.msn = message.msn;
  if (message.has_event != 0 && is_failure(message.event))
    answer.event = static_cast<ibv_event_type>(message.event);
  shard_.act_on(*target, [&] { target->on_owner_answer(answer); });
  return true;
}

}  // namespace verbena::engine
