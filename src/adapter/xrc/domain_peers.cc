// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/domain_peers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/net/udp/system_calls.h"

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

using roce::NakCode;

// The agent may be restarting, so it is asked this often, and this many times before an owner counts as gone.
constexpr Duration kAskInterval = std::chrono::milliseconds(100);
constexpr uint32_t kMaxAsked = 20;

}  // namespace

// Bypasses the C library, whose call is a cancellation point: the shard's lock is held.
bool PeerLink::has_hung_up() const {
  pollfd entry{fd(), 0, 0};  // hang-ups are reported without being requested
  const timespec now{};
  return ::syscall(SYS_ppoll, &entry, 1L, &now, nullptr, 0L) == 1;
}

bool PeerLink::send(std::span<const iovec> pieces) {
  if (lost_) return false;
  if (!is_open() || has_waiting()) return keep(pieces);
  const Outcome outcome = send_now(fd(), pieces);
  if (outcome == Outcome::kFull) return keep(pieces);
  lost_ = outcome == Outcome::kLost;
  return !lost_;
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
  reads_ -= stand_in->second->attributes().max_dest_rd_atomic;
  stand_ins_.erase(stand_in);
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
  if (reads_ + message.max_dest_rd_atomic > kMaxReads) return nullptr;
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
    transport::StandIn* const added = (stand_ins_[message.qpn] = std::move(made)).get();
    reads_ += message.max_dest_rd_atomic;
    return added;
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

DomainPeers::DomainPeers(Shard& shard, memory::KeyTable& keys, const queues::SharedReceiveQueueTable& queues,
                         Ask ask)
    : shard_(shard),
      keys_(keys),
      queues_(queues),
      ask_(std::move(ask)),
      flushing_([this] { take_care(); }),
      asking_([this] { ask_again(); }) {}

DomainPeers::~DomainPeers() {
  shard_.exclusively([&] {
    if (is_input_) shard_.remove_input(*this);
    shard_.cancel_alarm(flushing_);
    shard_.cancel_alarm(asking_);
    targets_.clear();
    owners_.clear();
  });
}

template <class Visit>
void DomainPeers::for_each_peer(Visit visit) {
  for (const auto& [key, owner] : owners_) visit(*owner);
  for (const auto& [key, target] : targets_) visit(*target);
}

// ---- called by the transport

OwnerPeer* DomainPeers::find_owner(const Peer::Key& key) {
  const auto known = owners_.find(key);
  if (known != owners_.end()) return known->second.get();
  try {
    const auto made = owners_.emplace(key, std::make_unique<OwnerPeer>(shard_, key, *this)).first;
    ask(*made->second);
    return made->second.get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool DomainPeers::pass(const transport::ForwardedRequest& request) {
  const uint32_t slot = queues::SharedReceiveQueueTable::slot_of(request.packet.headers.xrc_srq);
  OwnerPeer* owner = find_owner({request.target.config().xrc_domain, slot});
  return owner != nullptr && owner->pass(request);
}

void DomainPeers::end(const transport::QueuePair& target) {
  const uint64_t domain = target.config().xrc_domain;
  for (auto at = owners_.lower_bound({domain, 0}); at != owners_.end() && at->first.domain == domain; ++at)
    at->second->end(target.config().qpn);
}

// ---- links

void DomainPeers::ask(OwnerPeer& owner) {
  ++owner.asked;
  ask_(owner.key());
  set(asking_, kAskInterval);
}

void DomainPeers::ask_again() {
  asking_.is_set = false;
  std::vector<Peer::Key> silent;
  for (const auto& [key, owner] : owners_) {
    if (owner->link().is_open()) continue;
    if (owner->asked < kMaxAsked) {
      ask(*owner);
    } else {
      silent.push_back(key);
    }
  }
  for (const Peer::Key& key : silent) {
    owners_.erase(key);
    tell_gone(key, NakCode::kRemoteOperational);
  }
}

void DomainPeers::connect(control::DomainPeer news) {
  ForeignSocket socket(std::move(news.socket));
  const Peer::Key key{news.domain, news.slot};
  shard_.exclusively([&] {
    if (news.is_end_of_lease()) {
      if (news.own_slot == shard_.slot()) end_links_to(news.slot);
    } else if (news.asked) {
      connect_owner(key, std::move(socket), news.error);
    } else if (socket) {
      connect_target(key, std::move(socket));
    }
  });
}

void DomainPeers::connect_owner(const Peer::Key& key, ForeignSocket socket, int error) {
  const auto at = owners_.find(key);
  if (at == owners_.end() || at->second->link().is_open()) return;
  if (!socket && error == EAGAIN) return;  // ask_again() repeats the question
  OwnerPeer& owner = *at->second;
  if (socket) owner.link().open(std::move(socket));
  if (owner.link().is_open() && listen_to(owner)) {
    if (owner.link().is_lost() || owner.link().has_waiting()) needs_care();
    return;
  }
  owners_.erase(at);
  // A queue that does not exist, or is in another domain, makes the request invalid (IBTA volume 1, annex
  // A14).
  tell_gone(key, error == ENOENT ? NakCode::kInvalidRequest : NakCode::kRemoteOperational);
}

// The process may keep its ends, and another one gets the slot. Messages that it sent before still count, as
// an owner's answers do.
void DomainPeers::end_links_to(uint32_t slot) {
  for_each_peer([slot](Peer& peer) {
    if (peer.key().slot != slot || !peer.link().is_open()) return;
    peer.receive(kMaxAtEnd);
    peer.link().lose();
  });
  remove_lost();
}

// A process that asks twice because the agent is slow gets two links and keeps the first; so does this side.
// If it has given up the first, it has closed it before.
void DomainPeers::connect_target(const Peer::Key& key, ForeignSocket socket) {
  const auto known = targets_.find(key);
  if (known != targets_.end()) {
    if (!known->second->link().has_hung_up()) return;
    targets_.erase(known);
  }
  auto target = std::make_unique<TargetPeer>(shard_, keys_, queues_, key, *this, std::move(socket));
  if (listen_to(*target)) targets_[key] = std::move(target);
}

bool DomainPeers::listen_to(Peer& peer) {
  if (!poll_set_) poll_set_ = UniqueFd(plain_epoll_create());
  if (!peer.announce_in(poll_set_.get())) return false;
  if (!is_input_) is_input_ = shard_.add_input(*this).has_value();
  return is_input_;
}

void DomainPeers::leave(uint64_t domain) {
  shard_.exclusively([&] {
    const auto in_domain = [&](const auto& entry) { return entry.first.domain == domain; };
    std::erase_if(owners_, in_domain);
    std::erase_if(targets_, in_domain);
  });
}

uint32_t DomainPeers::receive(uint32_t budget, TimePoint) {
  std::array<epoll_event, 16> events;
  // Bypasses the C library, whose call is a cancellation point: the shard's lock is held.
  const long ready = ::syscall(SYS_epoll_pwait, poll_set_.get(), events.data(),
                               static_cast<int>(events.size()), 0, nullptr, 0);
  uint32_t received = 0;
  bool lost = false;
  for (long i = 0; i < ready; ++i) {
    auto& peer = *static_cast<Peer*>(events[static_cast<size_t>(i)].data.ptr);
    received += peer.receive(budget);
    lost |= peer.link().is_lost();
  }
  if (lost) remove_lost();
  return received;
}

void DomainPeers::remove_lost() {
  std::vector<Peer::Key> gone;
  for (const auto& [key, owner] : owners_) {
    if (owner->link().is_lost()) gone.push_back(key);
  }
  for (const Peer::Key& key : gone) owners_.erase(key);
  std::erase_if(targets_, [](const auto& entry) { return entry.second->link().is_lost(); });
  for (const Peer::Key& key : gone) tell_gone(key, NakCode::kRemoteOperational);
}

// Answers everything that waits for this owner.
void DomainPeers::tell_gone(const Peer::Key& owner, NakCode code) {
  shard_.for_each([&](transport::QueuePair& qp) {
    if (qp.config().owners != this || qp.config().xrc_domain != owner.domain) return;
    shard_.act_on(qp, [&] { qp.on_owner_gone(owner.slot, code); });
  });
}

// ---- links that need attention

void DomainPeers::take_care() {
  flushing_.is_set = false;
  bool lost = false;
  bool full = false;
  for_each_peer([&](Peer& peer) {
    peer.link().flush();
    lost |= peer.link().is_lost();
    full |= peer.link().is_open() && peer.link().has_waiting();
  });
  if (lost) remove_lost();
  if (full) needs_care();
}

// In a child after fork(): leaves the links to the parent.
void DomainPeers::abandon() {
  for_each_peer([](Peer& peer) { peer.abandon(); });
  poll_set_.reset();
}

}  // namespace verbena::engine
