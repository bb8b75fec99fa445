// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/target_peer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <new>

namespace verbena::engine {
namespace {

constexpr uint32_t kLeastPathMtu = 256;

roce::Address address_of(const uint8_t (&bytes)[16]) {
  roce::Address address;
  std::copy(std::begin(bytes), std::end(bytes), address.bytes.begin());
  return address;
}

bool is_sound(const RequestMessage& message) {
  return message.path_mtu >= kLeastPathMtu && message.path_mtu <= roce::kMaxPathMtu &&
         std::has_single_bit(message.path_mtu) && message.requester <= roce::Qpn::kMask &&
         message.min_rnr_timer < 32;
}

// Sets the attributes that may change while a target is in use.
void set_changeable(transport::QpAttributes& attributes, const RequestMessage& message) {
  attributes.destination = roce::Qpn(message.requester);
  attributes.access = message.access;
  attributes.min_rnr_timer = message.min_rnr_timer;
  attributes.path.source = address_of(message.source);
  attributes.path.destination = address_of(message.destination);
  attributes.path.interface_index = message.interface_index;
  attributes.path.flow_label = message.flow_label & 0xfffff;
  attributes.path.traffic_class = message.traffic_class;
  attributes.path.hop_limit = message.hop_limit;
}

}  // namespace

TargetPeer::TargetPeer(const Surroundings& surroundings, const Key& key, PeerKeeper& keeper,
                       ForeignSocket socket)
    : Peer(key, keeper), shard_(surroundings.shard), keys_(surroundings.keys), queues_(surroundings.queues) {
  link().open(std::move(socket));
}

TargetPeer::~TargetPeer() {
  link().lose();
  while (!stand_ins_.empty()) end(stand_ins_.begin());
}

// A receive request that a message had begun to fill completes in error (IBTA volume 1, 10.3.1: flushed).
void TargetPeer::end(StandIns::iterator stand_in) {
  if (stand_in->second->state() != IBV_QPS_ERR) stand_in->second->enter(IBV_QPS_ERR);
  stand_ins_.erase(stand_in);
}

void TargetPeer::forget(const queues::SharedReceiveQueue& queue) {
  for (const auto& [qpn, stand_in] : stand_ins_) stand_in->receives().forget(queue);
}

bool TargetPeer::take(ConstBytes bytes) {
  RequestMessage message;
  if (bytes.size() < sizeof message) return false;
  std::memcpy(&message, bytes.data(), sizeof message);
  const bool is_theirs = message.qpn <= roce::Qpn::kMask && roce::Qpn(message.qpn).slot() == key().slot;
  if (message.magic != kPeerMagic || !is_theirs) return false;
  if (message.type == PeerMessage::kRequest) return take_request(message, bytes.subspan(sizeof message));
  if (message.type != PeerMessage::kEnd) return false;
  const auto ended = stand_ins_.find(message.qpn);
  if (ended != stand_ins_.end()) end(ended);
  return true;
}

bool TargetPeer::take_request(const RequestMessage& message, ConstBytes bytes) {
  const auto packet = roce::parse(bytes);
  if (!packet || !is_sound(message)) return false;
  const auto known = stand_ins_.find(message.qpn);
  if (known == stand_ins_.end() && message.repeated != 0) return true;  // its stand-in has ended
  transport::StandIn* stand_in = known != stand_ins_.end() ? known->second.get() : make(message);
  if (stand_in == nullptr) return false;
  if (message.repeated == 0) {
    set_changeable(stand_in->attributes(), message);
    stand_in->follow(message.run, packet->headers.psn, message.msn);
  }
  roce::Path path;
  path.source = stand_in->attributes().path.destination;
  path.destination = stand_in->attributes().path.source;
  shard_.deliver(*stand_in, {*packet, path, static_cast<uint32_t>(bytes.size())});
  return true;
}

transport::StandIn* TargetPeer::make(const RequestMessage& message) {
  transport::QpConfig config;
  config.qpn = roce::Qpn(message.qpn);
  config.keys = &keys_;
  config.routes = &shard_.routes();
  config.srqs = &queues_;
  config.xrc_domain = key().domain;
  try {
    auto made = std::make_unique<transport::StandIn>(config, answers());
    transport::QpAttributes& attributes = made->attributes();
    attributes.path_mtu = message.path_mtu;
    attributes.max_dest_rd_atomic = message.max_dest_rd_atomic;
    set_changeable(attributes, message);
    made->begin();
    return (stand_ins_[message.qpn] = std::move(made)).get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void TargetPeer::answer(const transport::StandIn& stand_in, const transport::OwnerAnswer& answer,
                        bool after_packets) {
  // Packets that are not flushed now are late, and the requester asks again.
  if (after_packets) shard_.push();
  AnswerMessage message{};
  message.magic = kPeerMagic;
  message.type = PeerMessage::kAnswer;
  message.syndrome = answer.syndrome;
  message.qpn = stand_in.config().qpn.value();
  message.run = answer.run;
  message.psn = answer.psn.value();
  message.msn = answer.msn;
  message.has_event = answer.event.has_value() ? 1 : 0;
  message.event = answer.event.has_value() ? static_cast<uint32_t>(*answer.event) : 0;
  const iovec piece{&message, sizeof message};
  // A target that forwards so many requests and reads so few answers is not waited for.
  if (!say({&piece, 1})) link().lose();
}

}  // namespace verbena::engine
