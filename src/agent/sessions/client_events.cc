// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/client_events.h"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

namespace verbena::agent {
namespace {

using protocol::MessageType;

}  // namespace

ClientEvents::ClientEvents(EventLoop& loop, ClientSockets& sockets, uid_t user, const LinkPublisher& links,
                           Surroundings surroundings, QuotaShare share)
    : loop_(loop),
      sockets_(sockets),
      user_(user),
      links_(links),
      surroundings_(std::move(surroundings)),
      share_(std::move(share)) {}

ClientEvents::~ClientEvents() {
  if (socket_) loop_.forget(socket_->get());
}

Result<UniqueFd> ClientEvents::open(uint16_t version) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return fail(errno);
  socket_.emplace(sockets_, user_, UniqueFd(ends[0]), ClientSockets::For::kEvents, share_);
  version_ = version;
  loop_.watch_for(user_, socket_->get(), EPOLLIN, [this](uint32_t) { return on_readable(); });
  return UniqueFd(ends[1]);
}

void ClientEvents::links_changed() {
  if (!socket_ || stopped_) return;
  links_outdated_ = true;
  push_links();
}

void ClientEvents::push_links() {
  if (!links_outdated_ || links_unseen_) return;
  const auto event = protocol::request_header(MessageType::kLinksChanged, ++sequence_, version_);
  const int file = links_.file();
  // Sent even if the user has many unread descriptors: there is at most one per client.
  if (socket_->send(protocol::bytes_of(event), {&file, 1})) {
    links_outdated_ = false;
    links_unseen_ = true;
  }
}

template <class Message>
bool ClientEvents::say(const Message& message, const UniqueFd& file, uint32_t& unseen) {
  const int fd = file.get();
  if (file && !socket_->may_send(1)) return false;
  const auto sent = socket_->send(protocol::bytes_of(message), {&fd, file ? 1u : 0u});
  if (sent) ++unseen;
  return sent.has_value();
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
  const bool told = say_peer(peer);
  sockets_.closer().close(other, std::move(peer.socket));
  return told;
}

bool ClientEvents::say_peer(const control::DomainPeer& peer) {
  if (stopped_ || !socket_ || peers_unseen_ >= protocol::kMaxPeersUnseen) return false;
  protocol::PeerMessage message{};
  message.header = protocol::request_header(MessageType::kPeer, 0, version_);
  message.header.error = peer.error;
  message.domain = peer.domain;
  message.slot = peer.slot;
  message.asked = peer.asked ? 1 : 0;
  return say(message, peer.socket, peers_unseen_);
}

bool ClientEvents::tell_channel(control::SlotChannel channel, uid_t other) {
  if (!channel.asked && !has_room_for_ends(other)) return false;
  const bool told = say_channel(channel);
  sockets_.closer().close(other, std::move(channel.socket));
  return told;
}

bool ClientEvents::say_channel(const control::SlotChannel& channel) {
  if (stopped_ || !socket_ || !knows_channels()) return false;
  if (channels_unseen_ >= protocol::kMaxChannelsUnseen) return false;
  protocol::ChannelMessage message{};
  message.header = protocol::request_header(MessageType::kChannel, 0, version_);
  message.header.error = channel.error;
  message.own_slot = channel.own_slot;
  message.peer_slot = channel.peer_slot;
  message.asked = channel.asked ? 1 : 0;
  return say(message, channel.socket, channels_unseen_);
}

bool ClientEvents::tell_capture(control::SlotCapture capture) {
  if (stopped_ || !socket_ || !knows_captures()) return false;
  if (capture.ring && captures_unseen_ >= protocol::kMaxCapturesUnseen) return false;
  protocol::CaptureMessage message{};
  message.header = protocol::request_header(MessageType::kCapture, 0, version_);
  message.slot = capture.slot;
  return say(message, capture.ring, captures_unseen_);
}

bool ClientEvents::tell_trace(bool on) {
  if (stopped_ || !socket_ || !knows_traces()) return false;
  if (on && traces_unseen_ >= protocol::kMaxTracesUnseen) return false;
  protocol::TraceMessage message{};
  message.header = protocol::request_header(MessageType::kTraceDetails, 0, version_);
  message.on = on ? 1 : 0;
  return say(message, UniqueFd(), traces_unseen_);
}

bool ClientEvents::on_readable() {
  if (stopped_) return false;
  std::byte buffer[protocol::kMaxEventBytes];
  const auto seen = socket_->look(buffer);
  if (!seen && seen.error().code == EAGAIN) return false;
  // A descriptor is not expected here. Closing the client's end also discards what it has sent.
  if (!seen || seen->bytes == 0 || seen->has_files) {
    surroundings_.on_end();
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
  if (is(MessageType::kAskPeer)) {
    const auto ask = protocol::read_as<protocol::PeerMessage>(message);
    if (message.size() == sizeof ask) surroundings_.on_ask_peer(ask.domain, ask.slot);
  } else if (is(MessageType::kPeerSeen)) {
    if (peers_unseen_ > 0) --peers_unseen_;
  } else if (is(MessageType::kAskChannel)) {
    const auto ask = protocol::read_as<protocol::ChannelMessage>(message);
    const bool whole = message.size() == sizeof ask;
    if (whole && knows_channels()) surroundings_.on_ask_channel(ask.own_slot, ask.peer_slot);
  } else if (is(MessageType::kChannelSeen)) {
    if (channels_unseen_ > 0) --channels_unseen_;
  } else if (is(MessageType::kCaptureSeen)) {
    if (captures_unseen_ > 0) --captures_unseen_;
  } else if (is(MessageType::kTraceDetailsSeen)) {
    if (traces_unseen_ > 0) --traces_unseen_;
  } else if (header.sequence == sequence_) {  // else it is no acknowledgement of the latest links
    links_unseen_ = false;
    push_links();
  }
}

}  // namespace verbena::agent
