// SPDX-License-Identifier: Apache-2.0
#include "control/client/client.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>

#include "base/text.h"
#include "control/model/link_table_file.h"
#include "control/protocol/messages.h"
#include "control/protocol/status_page.h"

namespace verbena::control {

using protocol::MessageType;
using Turn = AgentSession::Turn;

Client::Client(std::unique_ptr<AgentDialer> dialer)
    : session_(std::move(dialer), {&slots_, &domains_, &news_}, &news_) {}

Result<std::unique_ptr<Client>> Client::connect(const ConnectOptions& options) {
  return connect(std::make_unique<NamespaceDialer>(options));
}

Result<std::unique_ptr<Client>> Client::connect(std::unique_ptr<AgentDialer> dialer) {
  std::unique_ptr<Client> client(new Client(std::move(dialer)));
  if (const auto reached = Turn(client->session_).connect(); !reached) return fail(reached.error().code);
  return client;
}

Result<std::vector<Link>> Client::links() {
  Turn turn(session_);
  const auto answer = turn.call(MessageType::kGetLinks, protocol::GetLinksRequest{}, 1);
  if (!answer) return fail(answer.error().code);
  auto snapshot = read_link_file(answer->fds[0].get());
  if (!snapshot) return fail(snapshot.error().code);
  return std::move(snapshot->links);
}

Result<DeviceCounters> Client::device_counters(uint32_t device_index) {
  Turn turn(session_);
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  auto answer = turn.call<protocol::DeviceCountersReply>(MessageType::kGetDeviceCounters, request, 0);
  if (!answer) return fail(answer.error().code);
  return counters_in(answer->message);
}

Client::TakeoverEnd Client::takeover_state() {
  const Turn turn(session_);
  return {turn.agent_pid(), UniqueFd(::fcntl(turn.takeover_state(), F_DUPFD_CLOEXEC, 3))};
}

Result<Slot> Client::take_slot() {
  Turn turn(session_);
  auto answer = turn.call<protocol::TakeSlotReply>(MessageType::kTakeSlot, protocol::TakeSlotRequest{}, 1);
  if (!answer) return fail(answer.error().code);
  const protocol::SlotWire wire = answer->message.wire;
  if (wire != protocol::SlotWire::kNone && answer->fds.size() < 2) return fail(EPROTO);
  Slot slot;
  slot.index = answer->message.index;
  slot.status_page = std::move(answer->fds[0]);
  if (wire == protocol::SlotWire::kForwarded) {
    slot.is_forwarded = std::move(answer->fds[1]);
  } else if (wire != protocol::SlotWire::kNone) {
    slot.socket = std::move(answer->fds[1]);
  } else {
    slot.no_wire_reason = load_text(answer->message.no_wire_reason);
  }
  slots_.add(slot.index, protocol::secret_in(slot.status_page.get()));
  return slot;
}

Result<void> Client::return_slot(uint32_t index) {
  Turn turn(session_);
  if (!slots_.contains(index)) return fail(EINVAL);
  protocol::SlotRequest request{};
  request.index = index;
  const auto answer = turn.call(MessageType::kReturnSlot, request);
  slots_.remove(index);
  if (!answer) return fail(answer.error().code);
  return {};
}

Result<UniqueFd> Client::join_group(uint32_t device_index, const roce::Address& group) {
  Turn turn(session_);
  protocol::GroupRequest request{};
  request.device_index = device_index;
  std::copy(group.bytes.begin(), group.bytes.end(), request.group);
  auto answer = turn.call(MessageType::kJoinGroup, request, 1);
  if (!answer) return fail(answer.error().code);
  return std::move(answer->fds[0]);
}

Result<void> Client::open_domain(uint64_t domain, uint32_t slot, const DomainFile& file) {
  Turn turn(session_);
  if ((turn.capabilities() & protocol::kServesXrcDomains) == 0) return fail(EOPNOTSUPP);
  OpenDomain opened{domain, slot, file.device_index, UniqueFd(::fcntl(file.fd, F_DUPFD_CLOEXEC, 0))};
  if (!opened.file) return fail(errno);
  const uint32_t flags = (file.create ? protocol::DomainRequest::kCreate : 0) |
                         (file.exclusive ? protocol::DomainRequest::kExclusive : 0);
  const int fd = opened.file.get();
  const auto answer = turn.call(MessageType::kOpenDomain, opened.request(flags), 0, {&fd, 1});
  if (!answer) return fail(answer.error().code);
  domains_.add(std::move(opened));
  return {};
}

void Client::close_domain(uint64_t domain) {
  Turn turn(session_);
  const auto request = domains_.remove(domain);
  if (request) [[maybe_unused]]
    const auto answer = turn.call(MessageType::kCloseDomain, *request);
}

void Client::say_what_is_owed() {
  for (const MessageType owed : news_.take_owed()) {
    [[maybe_unused]] const auto sent =
        session_.send_event(protocol::bytes_of(protocol::request_header(owed, 0)));
  }
}

void Client::ask_for_peer(uint64_t domain, uint32_t slot) {
  say_what_is_owed();
  protocol::PeerMessage message{};
  message.header = protocol::request_header(MessageType::kAskPeer, 0);
  message.domain = domain;
  message.slot = slot;
  [[maybe_unused]] const auto sent = session_.send_event(protocol::bytes_of(message));
}

Result<void> Client::ask_for_channel(uint32_t own_slot, uint32_t peer_slot) {
  say_what_is_owed();
  protocol::ChannelMessage message{};
  message.header = protocol::request_header(MessageType::kAskChannel, 0);
  message.own_slot = own_slot;
  message.peer_slot = peer_slot;
  return session_.send_event(protocol::bytes_of(message), protocol::kFirstVersionWithChannels);
}

std::optional<std::vector<Link>> Client::next_links() {
  session_.attend();
  return news_.take_links();
}

void Client::abandon() {
  session_.abandon();
  domains_.abandon();
}

}  // namespace verbena::control
