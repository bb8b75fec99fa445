// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/client_events.h"

#include "control/model/message_socket.h"
#include "wire/roce/qpn.h"

namespace verbena::agent {
namespace {

using protocol::MessageType;

// The number of the message to a client, which its acknowledgement repeats. At the end of a lease it has the
// client's slot in its upper half, for a channel it has 0: no process has slot 0.
uint32_t number_of(const control::SlotChannel& channel) {
  const uint32_t own_slot = channel.is_end_of_lease() ? channel.own_slot : 0;
  return own_slot << roce::Qpn::kSlotBits | (channel.peer_slot & (roce::Qpn::kSlots - 1));
}

}  // namespace

ClientEvents::~ClientEvents() {
  if (socket_) loop_.forget(socket_->get());
}

Result<UniqueFd> ClientEvents::open(uint16_t version) {
  auto ends = control::make_socket_pair();
  if (!ends) return fail(ends.error().code);
  socket_.emplace(sockets_, user_, std::move(ends->ours), ClientSockets::For::kEvents, share_);
  version_ = version;
  loop_.watch_for(user_, socket_->get(), EPOLLIN, [this](uint32_t events) { return on_event(events); });
  return std::move(ends->theirs);
}

void ClientEvents::links_changed() {
  if (!socket_ || stopped_) return;
  links_outdated_ = true;
  loop_.set_events(socket_->get(), EPOLLIN | EPOLLOUT);  // on_event() sends it
}

bool ClientEvents::on_event(uint32_t events) {
  if (stopped_) return false;
  if ((events & EPOLLOUT) != 0) {
    push_links();
    if (!links_outdated_ || links_unseen_) loop_.set_events(socket_->get(), EPOLLIN);
    if (std::exchange(awaits_room_, false)) client_.on_room();
  }
  return on_readable();
}

void ClientEvents::push_links() {
  if (!links_outdated_ || links_unseen_) return;
  const auto event = protocol::request_header(MessageType::kLinksChanged, ++sequence_, version_);
  const int file = links_.file();
  // Sent even if the user has many unread descriptors: there is at most one per client.
  loop_.send_to(user_, [&] {
    links_unseen_ = socket_->send(protocol::bytes_of(event), {&file, 1}).has_value();
  });
  if (links_unseen_) links_outdated_ = false;
}

void ClientEvents::await_room() {
  if (!socket_ || stopped_) return;
  awaits_room_ = true;
  loop_.set_events(socket_->get(), EPOLLIN | EPOLLOUT);
}

template <class Message>
bool ClientEvents::say(Kind& kind, Message message, int error, const UniqueFd& file, bool is_limited) {
  if (stopped_ || !socket_ || !knows(kind) || (is_limited && kind.unseen >= kind.max_unseen)) return false;
  if (file && !socket_->may_send(1)) return false;
  message.header = protocol::request_header(kind.message, message.header.sequence, version_);
  message.header.error = error;
  const int fd = file.get();
  bool sent = false;
  loop_.try_send_to(user_, [&] {
    sent = socket_->send(protocol::bytes_of(message), {&fd, file ? 1u : 0u}).has_value();
  });
  if (sent) ++kind.unseen;
  return sent;
}

// Whether both ends of a pair of sockets may wait to be closed. Asked before the first end is sent, when the
// pair is empty: later the agent must close its copies, however many wait.
bool ClientEvents::has_room_for_ends(uid_t other) const {
  const ForeignCloser& closer = sockets_.closer();
  return closer.allows(user_) && closer.allows(other);
}

// Closes the socket on the closer's thread. The agent's copy may be the last one, with unread data of the
// other user.
bool ClientEvents::tell_peer(control::DomainPeer peer, uid_t other) {
  if (!peer.asked && !has_room_for_ends(other)) return false;
  const protocol::PeerMessage message{{}, peer.domain, peer.slot, peer.asked ? 1u : 0u};
  const bool told = say(peers_, message, peer.error, peer.socket);
  if (peer.socket) sockets_.closer().close(other, std::move(peer.socket));
  return told;
}

bool ClientEvents::tell_channel(control::SlotChannel channel) {
  const uid_t other = channel.peer_user;
  if (!channel.asked && channel.socket && !has_room_for_ends(other)) return false;
  protocol::ChannelMessage message{{}, channel.own_slot, channel.peer_slot, channel.asked ? 1u : 0u, other};
  const bool is_end = channel.is_end_of_lease();
  message.header.sequence = number_of(channel);
  bool told = false;
  if (is_end) {
    told = say(channels_, message, channel.error, channel.socket, false);
  } else if (unseen_channels_.allow(other)) {
    unseen_channels_.add(message.header.sequence, other);
    told = say(channels_, message, channel.error, channel.socket);
    if (!told) unseen_channels_.remove(message.header.sequence);
  }
  if (channel.socket) {
    sockets_.closer().close(other, std::move(channel.socket));
  }
  return told;
}

bool ClientEvents::tell_capture(control::SlotCapture capture) {
  const bool starts = static_cast<bool>(capture.ring);
  return say(captures_, protocol::CaptureMessage{{}, capture.slot, 0}, 0, capture.ring, starts);
}

bool ClientEvents::tell_trace(bool on) {
  return say(traces_, protocol::TraceMessage{{}, on ? 1u : 0u, 0}, 0, UniqueFd(), on);
}

bool ClientEvents::on_readable() {
  std::byte buffer[protocol::kMaxEventBytes];
  const auto seen = socket_->look(buffer);
  if (!seen && seen.error().code == EAGAIN) return false;
  // A descriptor is not expected here. Closing the client's end also discards what it has sent.
  if (!seen || seen->bytes == 0 || seen->has_files) {
    client_.on_end();
    return false;
  }
  socket_->drop();
  [[maybe_unused]] const bool counted =
      socket_->is_read();  // an answer shows that the client has received all
  take(ConstBytes(buffer, seen->bytes));
  return true;
}

void ClientEvents::take(ConstBytes message) {
  const auto header = protocol::read_as<protocol::MessageHeader>(message);
  const auto is = [&](MessageType type) { return header.type == static_cast<uint16_t>(type); };
  for (Kind* kind : {&peers_, &channels_, &captures_, &traces_}) {
    if (!is(kind->acknowledgement)) continue;
    if (kind->unseen > 0) --kind->unseen;
    if (kind == &channels_) take_channel_heard(header.sequence);
    return;
  }
  if (is(MessageType::kAskPeer)) {
    const auto ask = protocol::read_as<protocol::PeerMessage>(message);
    if (message.size() == sizeof ask) client_.on_ask_peer(ask.domain, ask.slot);
  } else if (is(MessageType::kAskChannel)) {
    const auto ask = protocol::read_as<protocol::ChannelMessage>(message);
    const bool whole = message.size() == sizeof ask;
    if (whole && knows(channels_)) client_.on_ask_channel(ask.own_slot, ask.peer_slot);
  } else if (header.sequence == sequence_) {  // else it is no acknowledgement of the latest links
    links_unseen_ = false;
    push_links();
  }
}

void ClientEvents::take_channel_heard(uint32_t number) {
  const uint32_t own_slot = number >> roce::Qpn::kSlotBits;
  const uint32_t ended = number & (roce::Qpn::kSlots - 1);
  if (own_slot == 0) return unseen_channels_.remove(number);
  if (own_slot < roce::Qpn::kSlots) client_.on_end_heard(own_slot, ended);
}

}  // namespace verbena::agent
