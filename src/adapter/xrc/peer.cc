// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/peer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/net/udp/system_calls.h"
#include "adapter/xrc/domain_peers.h"

namespace verbena::engine {

namespace {

enum class Outcome : uint8_t { kSent, kFull, kLost };

Outcome send_now(int socket, std::span<const iovec> pieces) {
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(pieces.data());
  header.msg_iovlen = pieces.size();
  for (;;) {
    if (net::system_calls::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Outcome::kSent;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? Outcome::kFull : Outcome::kLost;
  }
}

}  // namespace

// Bypasses the C library, whose call is a cancellation point: the shard's lock is held.
bool PeerLink::has_hung_up() const {
  pollfd entry{fd(), 0, 0};  // hang-ups are reported without being requested
  const timespec now{};
  return ::syscall(SYS_ppoll, &entry, 1L, &now, nullptr, 0L) == 1;
}

void PeerLink::open(ForeignSocket socket) {
  socket_ = std::move(socket);
  flush();
}

bool PeerLink::send(std::span<const iovec> pieces) {
  if (lost_) return false;
  if (!is_open() || has_waiting()) return keep(pieces);
  switch (send_now(fd(), pieces)) {
    case Outcome::kSent:
      return true;
    case Outcome::kFull:
      return keep(pieces);
    case Outcome::kLost:
      lost_ = true;
  }
  return false;
}

bool PeerLink::keep(std::span<const iovec> pieces) {
  size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  if (waiting_bytes_ + bytes > kMaxWaiting) return false;
  try {
    std::vector<std::byte> message;
    message.reserve(bytes);
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const std::byte*>(piece.iov_base);
      message.insert(message.end(), from, from + piece.iov_len);
    }
    waiting_.push_back(std::move(message));
  } catch (const std::bad_alloc&) {
    return false;
  }
  waiting_bytes_ += bytes;
  return true;
}

void PeerLink::flush() {
  while (is_open() && !lost_ && has_waiting()) {
    std::vector<std::byte>& message = waiting_.front();
    const iovec piece{message.data(), message.size()};
    const Outcome outcome = send_now(fd(), {&piece, 1});
    if (outcome == Outcome::kFull) return;
    if (outcome == Outcome::kLost) lost_ = true;
    waiting_bytes_ -= message.size();
    waiting_.pop_front();
  }
}

ConstBytes PeerLink::receive(Bytes buffer) {
  if (!is_open() || lost_) return {};
  const auto message = socket_.look(buffer, {});
  if (!message && message.error().code == EAGAIN) return {};
  // Peers never send descriptors.
  lost_ = !message || message->bytes == 0 || message->is_longer || message->has_more_files;
  if (lost_) return {};
  socket_.drop();
  return buffer.first(message->bytes);
}

void Peer::abandon() {
  entry_.forget();
  link_.abandon();
}

uint32_t Peer::receive(uint32_t budget) {
  std::array<std::byte, kMaxPeerMessage> buffer;
  uint32_t received = 0;
  while (received < budget) {
    const ConstBytes message = link_.receive(buffer);
    if (message.empty()) break;
    ++received;
    if (!take(message)) link_.lose();
  }
  if (received > 0) link_.flush();  // a peer that has written has probably read
  return received;
}

bool Peer::say(std::span<const iovec> pieces) {
  const bool said = link_.send(pieces);
  if (link_.is_lost() || link_.has_waiting()) peers_.needs_care();
  return said;
}

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
      target != nullptr && target->config().owners == &peers_ && target->config().xrc_domain == key().domain;
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

TargetPeer::TargetPeer(Shard& shard, memory::KeyTable& keys, const queues::SharedReceiveQueueTable& queues,
                       const Key& key, DomainPeers& peers, ForeignSocket socket)
    : Peer(key, peers), shard_(shard), keys_(keys), queues_(queues) {
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
  transport::StandInAnswers& answers = *this;
  try {
    auto made = std::make_unique<transport::StandIn>(config, answers);
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
