// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_news.h"

#include <utility>

#include "base/foreign_socket.h"
#include "control/model/link_table_file.h"
#include "control/model/message_socket.h"

namespace verbena::control {
namespace {

using protocol::MessageType;

// Maximum number of received descriptors that are yet to be closed. A process may send a descriptor that
// takes long to close, then others by other sockets, and each uses up one of the program's descriptors.
constexpr size_t kMaxToClose = 32;

void answer(const AgentEvent& event, MessageType type) {
  const auto seen = protocol::request_header(type, event.header.sequence);
  [[maybe_unused]] const auto answered = send_message(event.socket, protocol::bytes_of(seen));
}

template <class Message>
bool is_a(const AgentEvent& event, MessageType type) {
  return event.header.type == static_cast<uint16_t>(type) && event.message.size() == sizeof(Message);
}

}  // namespace

// Discards the sockets that nobody has asked for: other processes may have written to them already.
AgentNews::~AgentNews() {
  for (DomainPeer& peer : peers_) discard(std::move(peer.socket));
  for (SlotChannel& channel : channels_) discard(std::move(channel.socket));
}

std::optional<std::vector<Link>> AgentNews::take_links() {
  const std::lock_guard lock(mutex_);
  return std::exchange(links_, std::nullopt);
}

std::vector<DomainPeer> AgentNews::take_peers() {
  const std::lock_guard lock(mutex_);
  return std::exchange(peers_, {});
}

std::vector<SlotChannel> AgentNews::take_channels() {
  const std::lock_guard lock(mutex_);
  return std::exchange(channels_, {});
}

std::vector<SlotCapture> AgentNews::take_captures() {
  const std::lock_guard lock(mutex_);
  return std::exchange(captures_, {});
}

std::optional<bool> AgentNews::take_trace_details() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trace_details_, std::nullopt);
}

Result<void> AgentNews::restore(const NewAgent& agent) {
  auto snapshot = read_link_file(agent.link_table);
  if (!snapshot) return fail(snapshot.error().code);
  if (!std::exchange(knows_an_agent_, true)) return {};  // the first table is got by links()
  const std::lock_guard lock(mutex_);
  owed_.clear();
  links_ = std::move(snapshot->links);
  // A capturing or tracing program of the previous agent has seen that agent end.
  captures_.clear();
  captures_.emplace_back();
  trace_details_ = false;
  return {};
}

bool AgentNews::on_event(AgentEvent event) {
  if (is_a<protocol::PeerMessage>(event, MessageType::kPeer)) {
    on_peer(protocol::read_as<protocol::PeerMessage>(event.message), event);
    return true;
  }
  if (is_a<protocol::ChannelMessage>(event, MessageType::kChannel)) {
    on_channel(protocol::read_as<protocol::ChannelMessage>(event.message), event);
    return true;
  }
  if (is_a<protocol::CaptureMessage>(event, MessageType::kCapture)) {
    on_capture(protocol::read_as<protocol::CaptureMessage>(event.message), event);
    return true;
  }
  if (is_a<protocol::TraceMessage>(event, MessageType::kTraceDetails)) {
    on_trace(protocol::read_as<protocol::TraceMessage>(event.message), event);
    return true;
  }
  if (event.message.size() != sizeof event.header || event.fds.size() != 1) return false;
  answer(event, MessageType::kLinksSeen);
  auto snapshot = read_link_file(event.fds[0].get());
  if (!snapshot) return true;
  const std::lock_guard lock(mutex_);
  links_ = std::move(snapshot->links);
  return true;
}

std::vector<MessageType> AgentNews::take_owed() {
  if (discarding() >= kMaxToClose) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(owed_, {});
}

void AgentNews::acknowledge(const AgentEvent& event, MessageType type) {
  {
    const std::lock_guard lock(mutex_);
    owed_.push_back(type);
  }
  for (const MessageType owed : take_owed()) answer(event, owed);
}

void AgentNews::on_peer(const protocol::PeerMessage& message, AgentEvent& event) {
  acknowledge(event, MessageType::kPeerSeen);
  DomainPeer peer{message.domain, message.slot, message.asked != 0, message.header.error, {}};
  if (!event.fds.empty()) peer.socket = std::move(event.fds.front());
  const std::lock_guard lock(mutex_);
  peers_.push_back(std::move(peer));
}

void AgentNews::on_channel(const protocol::ChannelMessage& message, AgentEvent& event) {
  acknowledge(event, MessageType::kChannelSeen);
  SlotChannel channel{message.own_slot, message.peer_slot, message.asked != 0, message.header.error, {}};
  if (!event.fds.empty()) channel.socket = std::move(event.fds.front());
  const std::lock_guard lock(mutex_);
  channels_.push_back(std::move(channel));
}

void AgentNews::on_capture(const protocol::CaptureMessage& message, AgentEvent& event) {
  answer(event, MessageType::kCaptureSeen);
  SlotCapture capture{message.slot, {}};
  if (!event.fds.empty()) capture.ring = std::move(event.fds.front());
  const std::lock_guard lock(mutex_);
  captures_.push_back(std::move(capture));
}

void AgentNews::on_trace(const protocol::TraceMessage& message, const AgentEvent& event) {
  answer(event, MessageType::kTraceDetailsSeen);
  const std::lock_guard lock(mutex_);
  trace_details_ = message.on != 0;
}

}  // namespace verbena::control
