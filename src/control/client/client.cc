// SPDX-License-Identifier: Apache-2.0
#include "control/client/client.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>

#include "base/foreign_socket.h"
#include "base/text.h"
#include "control/model/message_socket.h"
#include "control/protocol/status_page.h"

namespace verbena::control {

void HeldSlots::remove(uint32_t index) {
  std::erase_if(slots_, [&](const Held& slot) { return slot.index == index; });
}

bool HeldSlots::contains(uint32_t index) const {
  return std::ranges::find(slots_, index, &Held::index) != slots_.end();
}

Result<void> HeldSlots::restore(const NewAgent& agent) {
  for (const Held& slot : slots_) {
    const auto kept = restore(slot, agent);
    if (kept) continue;
    if (agent.connection.lost()) return fail(kept.error().code);
    log_warning("the restarted agent does not know our slot {}: errno {}", slot.index, kept.error().code);
  }
  return {};
}

// Claims a slot by its secret. An agent of an older release than the previous one identifies the process by
// its pid alone.
Result<void> HeldSlots::restore(const Held& slot, const NewAgent& agent) {
  const auto ask = [&](protocol::MessageType type, auto request) -> Result<void> {
    request.index = slot.index;
    const auto reply = agent.connection.call<protocol::PlainReply>(type, request, 0, agent.deadline);
    return reply ? Result<void>() : fail(reply.error().code);
  };
  if (protocol::is_set(slot.secret)) {
    protocol::ClaimSlotRequest request{};
    request.secret = slot.secret;
    const auto claimed = ask(protocol::MessageType::kClaimSlot, request);
    if (claimed || claimed.error().code != EOPNOTSUPP) return claimed;
  }
  return ask(protocol::MessageType::kKeepSlot, protocol::SlotRequest{});
}

protocol::DomainRequest OpenDomain::request(uint32_t flags) const {
  protocol::DomainRequest request{};
  request.domain = domain;
  request.device_index = device_index;
  request.slot = slot;
  request.flags = flags;
  return request;
}

std::optional<protocol::DomainRequest> OpenDomains::remove(uint64_t domain) {
  const auto known = std::ranges::find(domains_, domain, &OpenDomain::domain);
  if (known == domains_.end()) return {};
  const protocol::DomainRequest request = known->request(0);
  domains_.erase(known);
  return request;
}

Result<void> OpenDomains::restore(const NewAgent& agent) {
  for (const OpenDomain& open : domains_) {
    if (!open.file.is_ours()) continue;
    const int file = open.file.get();
    const auto joined = agent.connection.call<protocol::PlainReply>(
        protocol::MessageType::kOpenDomain, open.request(protocol::DomainRequest::kCreate), 0, agent.deadline,
        {&file, 1});
    if (joined) continue;
    // Nothing was sent in the second case. The session tries again later.
    if (agent.connection.lost() || joined.error().code == ETOOMANYREFS) return fail(joined.error().code);
  }
  return {};
}

namespace {

using protocol::MessageType;

// Maximum numbers of received descriptors that are yet to be closed, of all users and of one. A process may
// send a descriptor that takes long to close, then others by other sockets, and each uses up one of the
// program's descriptors.
constexpr size_t kMaxToClose = 128;
constexpr size_t kMaxToCloseOfUser = 8;

bool send_header(int socket, const protocol::MessageHeader& header) {
  return send_message(socket, protocol::bytes_of(header)).has_value();
}

void answer(const AgentEvent& event, MessageType type) {
  [[maybe_unused]] const bool answered =
      send_header(event.socket, protocol::request_header(type, event.header.sequence));
}

// Returns the event's message if it is of this type.
template <class Message>
std::optional<Message> message_in(const AgentEvent& event, MessageType type) {
  const bool is_one =
      event.header.type == static_cast<uint16_t>(type) && event.message.size() == sizeof(Message);
  return is_one ? std::optional(protocol::read_as<Message>(event.message)) : std::nullopt;
}

UniqueFd file_of(AgentEvent& event) {
  return event.fds.empty() ? UniqueFd() : std::move(event.fds.front());
}

}  // namespace

// Discards the sockets that nobody has asked for: other processes may have written to them already.
AgentNews::~AgentNews() {
  for (DomainPeer& peer : peers_) discard(std::move(peer.socket));
  for (SlotChannel& channel : channels_) discard(std::move(channel.socket), channel.peer_user);
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
  if (const auto peer = message_in<protocol::PeerMessage>(event, MessageType::kPeer)) {
    acknowledge(event, MessageType::kPeerSeen, kUnknownUser);
    const std::lock_guard lock(mutex_);
    peers_.push_back({peer->domain, peer->slot, peer->asked != 0, peer->header.error, file_of(event)});
  } else if (const auto channel = message_in<protocol::ChannelMessage>(event, MessageType::kChannel)) {
    SlotChannel news{channel->own_slot,     channel->peer_slot, channel->asked != 0,
                     channel->header.error, file_of(event),     channel->peer_user};
    const bool is_end = news.is_end_of_lease();
    is_end ? acknowledge_at_once(event, MessageType::kChannelSeen)
           : acknowledge(event, MessageType::kChannelSeen, news.peer_user);
    const std::lock_guard lock(mutex_);
    // In order with the connections before and after it, which may be of different processes.
    if (is_end) peers_.push_back({0, news.peer_slot, false, ESTALE, {}, news.own_slot});
    channels_.push_back(std::move(news));
  } else if (const auto capture = message_in<protocol::CaptureMessage>(event, MessageType::kCapture)) {
    answer(event, MessageType::kCaptureSeen);
    const std::lock_guard lock(mutex_);
    captures_.push_back({capture->slot, file_of(event)});
  } else if (const auto trace = message_in<protocol::TraceMessage>(event, MessageType::kTraceDetails)) {
    answer(event, MessageType::kTraceDetailsSeen);
    const std::lock_guard lock(mutex_);
    trace_details_ = trace->on != 0;
  } else {
    if (event.message.size() != sizeof event.header || event.fds.size() != 1) return false;
    answer(event, MessageType::kLinksSeen);
    auto snapshot = read_link_file(event.fds[0].get());
    if (!snapshot) return true;
    const std::lock_guard lock(mutex_);
    links_ = std::move(snapshot->links);
  }
  return true;
}

void AgentNews::send_owed(const Send& send) {
  if (discarding() >= kMaxToClose) return;
  auto owed = take(owed_);
  std::erase_if(owed, [&](const Owed& one) {
    return discarding(one.user) < kMaxToCloseOfUser && send(one.acknowledgement);
  });
  const std::lock_guard lock(mutex_);
  owed_.insert(owed_.begin(), owed.begin(), owed.end());
}

void AgentNews::owe(const AgentEvent& event, MessageType type, uid_t user) {
  const std::lock_guard lock(mutex_);
  owed_.push_back({protocol::request_header(type, event.header.sequence), user});
}

void AgentNews::acknowledge(const AgentEvent& event, MessageType type, uid_t user) {
  owe(event, type, user);
  send_owed([&](const protocol::MessageHeader& header) { return send_header(event.socket, header); });
}

void AgentNews::acknowledge_at_once(const AgentEvent& event, MessageType type) {
  if (!send_header(event.socket, protocol::request_header(type, event.header.sequence)))
    owe(event, type, kUnknownUser);
}

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
  std::ranges::copy(group.bytes, request.group);
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
  news_.send_owed([this](const protocol::MessageHeader& header) {
    return session_.send_event(protocol::bytes_of(header)).has_value();
  });
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
