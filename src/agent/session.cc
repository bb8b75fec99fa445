// SPDX-License-Identifier: Apache-2.0
#include "agent/session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/cm/status.h"
#include "agent/keeper.h"
#include "agent/process.h"
#include "base/log.h"
#include "protocol/text.h"

namespace verbena::agent {
namespace {

using protocol::MessageHeader;
using protocol::MessageType;

// So that one client's flood leaves time for the others.
constexpr int kMessagesPerRound = 16;

// The length was checked: shorter is what an older library sends, longer what a newer one does.
template <class Message>
Message read_as(ConstBytes bytes) {
  Message message{};
  std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
  return message;
}

// The same file for reading only: a status page is written by its owner alone.
UniqueFd reopen_read_only(int fd) {
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

const Session::Request Session::kRequests[] = {
    {MessageType::kHello, sizeof(protocol::HelloRequest), &Session::hello},
    {MessageType::kGetLinks, sizeof(MessageHeader), &Session::get_links},
    {MessageType::kTakeSlot, sizeof(MessageHeader), &Session::take_slot},
    {MessageType::kKeepSlot, sizeof(protocol::SlotRequest), &Session::keep_slot},
    {MessageType::kReturnSlot, sizeof(protocol::SlotRequest), &Session::return_slot},
    {MessageType::kAddLink, sizeof(protocol::LinkRequest), &Session::add_link},
    {MessageType::kDeleteLink, sizeof(protocol::LinkRequest), &Session::delete_link},
    {MessageType::kJoinGroup, sizeof(protocol::GroupRequest), &Session::join_group},
    {MessageType::kOpenDomain, sizeof(protocol::DomainRequest), &Session::open_domain},
    {MessageType::kCloseDomain, sizeof(protocol::DomainRequest), &Session::close_domain},
    {MessageType::kGetDeviceCounters, sizeof(protocol::DeviceRequest), &Session::get_device_counters},
    {MessageType::kGetStatus, sizeof(MessageHeader), &Session::get_status},
    {MessageType::kGetCmStatus, sizeof(MessageHeader), &Session::get_cm_status},
    {MessageType::kGetSlotStatus, sizeof(protocol::SlotRequest), &Session::get_slot_status},
};

Session::Session(SessionHost& host, uint64_t id, UniqueFd socket, const ucred& peer)
    : host_(host),
      id_(id),
      socket_(std::move(socket)),
      process_(watch_peer(socket_.get(), peer.pid)),
      peer_(peer),
      start_time_(start_time_of(peer.pid)) {
  EventLoop& loop = host_.event_loop();
  loop.watch(socket_.get(), EPOLLIN, [this](uint32_t events) { on_readable(events); });
  if (process_) loop.watch(process_.get(), EPOLLIN, [this](uint32_t) { close(); });
}

Session::~Session() {
  EventLoop& loop = host_.event_loop();
  loop.forget(socket_.get());
  if (process_) loop.forget(process_.get());
  if (events_) loop.forget(events_.get());
}

void Session::on_readable(uint32_t events) {
  for (int i = 0; i < kMessagesPerRound && !closing_ && !pending_hello_; ++i) {
    std::byte buffer[protocol::kMaxMessageBytes];
    auto received = agent_client::receive_message(socket_.get(), buffer);
    if (!received && received.error().code == EAGAIN) return;
    if (!received || received->bytes == 0) return close();
    handle(ConstBytes(buffer, received->bytes), std::move(received->fds), received->truncated);
  }
  if (pending_hello_ && (events & (EPOLLHUP | EPOLLERR)) != 0) close();
}

void Session::handle(ConstBytes message, std::vector<UniqueFd> fds, bool truncated) {
  MessageHeader header{};
  std::memcpy(&header, message.data(), std::min(message.size(), sizeof header));
  if (message.size() < sizeof header) return reply_error(header, EBADMSG, "shorter than a header");
  if (header.magic != protocol::kProtocolMagic) {
    return reply_error(header, EPROTONOSUPPORT, "this is no message of the agent's protocol");
  }
  if (!protocol::is_neighbour(header.version)) return refuse_version(header);
  if (truncated) return reply_error(header, EMSGSIZE, "longer, or with more descriptors, than any request");
  const auto* request = std::find_if(std::begin(kRequests), std::end(kRequests), [&](const Request& known) {
    return static_cast<uint16_t>(known.type) == header.type;
  });
  const bool is_cm = CmClient::request_bytes(header.type) != 0;
  if (!is_cm && request == std::end(kRequests)) return reply_error(header, EOPNOTSUPP, "no such request");
  const size_t bytes = is_cm ? CmClient::request_bytes(header.type) : request->bytes;
  const bool fits =
      header.version > protocol::kProtocolVersion ? message.size() >= bytes : message.size() == bytes;
  if (!fits) return reply_error(header, EBADMSG, "of the wrong length");
  const bool is_hello = header.type == static_cast<uint16_t>(MessageType::kHello);
  if (is_hello == greeted_) {
    return reply_error(header, EPROTO, is_hello ? "hello was said already" : "say hello first");
  }
  const bool is_open_domain = header.type == static_cast<uint16_t>(MessageType::kOpenDomain);
  const size_t most_fds = is_hello || is_open_domain || CmClient::takes_descriptor(header.type) ? 1 : 0;
  if (fds.size() > most_fds) return reply_error(header, EBADMSG, "with unexpected descriptors");
  UniqueFd descriptor = fds.empty() ? UniqueFd() : std::move(fds.front());
  if (is_cm) return handle_cm(header, message, std::move(descriptor));
  descriptor_ = std::move(descriptor);
  (this->*request->handler)(header, message);
  descriptor_.reset();
}

// Of the two the one that was upgraded last has to be told: both are, here and in the reply.
void Session::refuse_version(const MessageHeader& request) {
  log_warning(
      "process {} speaks version {} of the agent's protocol, this agent (Verbena {}) version {}: refused",
      peer_.pid, request.version, VERBENA_VERSION, protocol::kProtocolVersion);
  host_.refused_version(peer_.pid, request.version);
  reply_error(
      request, EPROTONOSUPPORT,
      fmt::format("the agent is of Verbena {} and speaks version {} of its protocol, this program version "
                  "{}: end the older of the two, and start it anew",
                  VERBENA_VERSION, protocol::kProtocolVersion, request.version));
}

void Session::handle_cm(const MessageHeader& request, ConstBytes message, UniqueFd descriptor) {
  CmClient::Host& host = *this;
  if (!cm_) cm_.emplace(host_.connection_management(), host);
  cm_->handle(request, message, std::move(descriptor));
}

// A REQ for another's QP would end his connection: the peer takes its QPN for one that is used anew. Among
// processes of one user that is their own affair.
bool Session::may_use_qpn(uint32_t qpn) const {
  return peer_.uid == 0 || peer_.uid == ::geteuid() || host_.is_qpn_of(qpn, peer_.uid);
}

void Session::hello(const MessageHeader& request, ConstBytes message) {
  program_ = protocol::load_text(read_as<protocol::HelloRequest>(message).program);
  version_ = protocol::common_version(request.version);
  // What lies in a vault becomes ours: only our own user's is taken.
  UniqueFd vault = std::move(descriptor_);
  if (vault && peer_.uid == ::geteuid()) host_.offer_vault(std::move(vault));
  pending_hello_ = request;
  if (host_.ready_for_clients()) {
    finish_hello();
  } else {
    host_.event_loop().set_events(socket_.get(), 0);
  }
}

void Session::resume() {
  if (!pending_hello_) return;
  host_.event_loop().set_events(socket_.get(), EPOLLIN);
  finish_hello();
}

void Session::finish_hello() {
  const MessageHeader request = *std::exchange(pending_hello_, std::nullopt);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return reply_error(request, errno, "the agent has run out of descriptors");
  }
  events_.reset(ends[0]);
  const UniqueFd client_end(ends[1]);
  host_.event_loop().watch(events_.get(), EPOLLIN, [this](uint32_t events) { on_event_socket(events); });
  greeted_ = true;

  protocol::HelloReply answer{};
  answer.header = reply_header(request);
  answer.agent_pid = static_cast<uint32_t>(::getpid());
  answer.agent_uid = ::geteuid();
  protocol::store_text(answer.agent_version, VERBENA_VERSION);
  answer.capabilities = protocol::kServesXrcDomains | protocol::kServesConnectionManagement;
  // The vault holds every user's sockets: it is for our own user's processes only.
  const int fds[] = {client_end.get(), host_.link_file(), host_.vault_for_clients()};
  const size_t count = peer_.uid == ::geteuid() && host_.vault_for_clients() >= 0 ? 3 : 2;
  reply(protocol::reply_bytes(answer), {fds, count});
  host_.greeted();
}

void Session::get_links(const MessageHeader& request, ConstBytes) {
  const int file = host_.link_file();
  const protocol::PlainReply answer{reply_header(request)};
  reply(protocol::bytes_of(answer), {&file, 1});
}

bool Session::is_keeper() const {
  return greeted_ && peer_.uid == ::geteuid() && program_ == kKeeperName;
}

Borrower Session::borrower() const {
  return {id_, peer_.uid, peer_.pid, start_time_, program_, version_};
}

void Session::take_slot(const MessageHeader& request, ConstBytes) {
  const auto slot = host_.lend_slot(borrower());
  if (!slot) {
    return reply_error(request, slot.error().code,
                       slot.error().code == ENOSPC ? "all slots are lent" : "no status page could be made");
  }
  protocol::TakeSlotReply answer{};
  answer.header = reply_header(request);
  answer.index = slot->index;
  answer.has_socket = slot->socket >= 0 ? 1 : 0;
  if (slot->socket < 0) protocol::store_text(answer.no_wire_reason, host_.no_wire_reason());
  const int fds[] = {slot->page, slot->socket};
  reply(protocol::bytes_of(answer), {fds, slot->socket >= 0 ? 2u : 1u});
}

void Session::keep_slot(const MessageHeader& request, ConstBytes message) {
  const auto kept = host_.keep_slot(read_as<protocol::SlotRequest>(message).index, borrower());
  if (!kept) return reply_error(request, kept.error().code, "the slot is not known to be lent to this user");
  reply_plain(request);
}

void Session::return_slot(const MessageHeader& request, ConstBytes message) {
  const auto taken = host_.take_back_slot(read_as<protocol::SlotRequest>(message).index, id_);
  if (!taken) return reply_error(request, taken.error().code, "the slot is not lent to this process");
  reply_plain(request);
}

// Whoever may have a slot may listen to groups: the kernel lets anyone join them.
void Session::join_group(const MessageHeader& request, ConstBytes message) {
  const auto wanted = read_as<protocol::GroupRequest>(message);
  roce::Address group;
  std::copy(std::begin(wanted.group), std::end(wanted.group), group.bytes.begin());
  const auto socket = host_.join_group(wanted.device_index, group);
  if (!socket) return reply_error(request, socket.error().code, "the multicast group cannot be joined");
  const protocol::PlainReply answer{reply_header(request)};
  const int fd = socket->get();
  reply(protocol::bytes_of(answer), {&fd, 1});
}

void Session::open_domain(const MessageHeader& request, ConstBytes message) {
  const auto wanted = read_as<protocol::DomainRequest>(message);
  const DomainTable::Mode mode{.create = (wanted.flags & protocol::DomainRequest::kCreate) != 0,
                               .exclusive = (wanted.flags & protocol::DomainRequest::kExclusive) != 0};
  if (!descriptor_) return reply_error(request, EBADF, "without the domain's file");
  const auto opened =
      host_.open_domain({id_, wanted.domain, wanted.slot}, descriptor_.get(), wanted.device_index, mode);
  if (!opened) return reply_error(request, opened.error().code, "the XRC domain cannot be opened so");
  reply_plain(request);
}

void Session::close_domain(const MessageHeader& request, ConstBytes message) {
  const auto closed = host_.close_domain(id_, read_as<protocol::DomainRequest>(message).domain);
  if (!closed) return reply_error(request, closed.error().code, "no such XRC domain is open");
  reply_plain(request);
}

bool Session::may_change_links() const {
  return peer_.uid == 0 || peer_.uid == ::geteuid();
}

void Session::add_link(const MessageHeader& request, ConstBytes message) {
  if (!may_change_links()) return reply_error(request, EPERM, "only root may change root's links");
  const auto wanted = read_as<protocol::LinkRequest>(message);
  reply_outcome(request,
                host_.add_link(protocol::load_text(wanted.name), protocol::load_text(wanted.netdev)));
}

void Session::delete_link(const MessageHeader& request, ConstBytes message) {
  if (!may_change_links()) return reply_error(request, EPERM, "only root may change root's links");
  const auto wanted = read_as<protocol::LinkRequest>(message);
  reply_outcome(request, host_.delete_link(protocol::load_text(wanted.name)));
}

void Session::get_status(const MessageHeader& request, ConstBytes) {
  protocol::StatusReply answer{};
  answer.header = reply_header(request);
  answer.agent_pid = static_cast<uint32_t>(::getpid());
  answer.agent_uid = ::geteuid();
  protocol::store_text(answer.agent_version, VERBENA_VERSION);
  protocol::store_text(answer.no_wire_reason, host_.no_wire_reason());
  answer.protocol_version = protocol::kProtocolVersion;
  const RefusedPrograms refused = host_.refused_programs();
  answer.refused = refused.count;
  answer.refused_pid = refused.last_pid;
  answer.refused_version = refused.last_version;
  const int file = host_.link_file();
  reply(protocol::reply_bytes(answer), {&file, 1});
}

void Session::get_slot_status(const MessageHeader& request, ConstBytes message) {
  const auto slot = host_.find_lent_slot(read_as<protocol::SlotRequest>(message).index);
  if (!slot) return reply_error(request, ENOENT, "no more slots are lent");
  const UniqueFd page = reopen_read_only(slot->page);
  if (!page) return reply_error(request, errno, "the status page cannot be opened (is /proc mounted?)");
  protocol::SlotStatusReply answer{};
  answer.header = reply_header(request);
  answer.index = slot->index;
  answer.pid = slot->borrower.pid;
  answer.uid = slot->borrower.uid;
  answer.has_socket = slot->socket >= 0 ? 1 : 0;
  protocol::store_text(answer.program, slot->borrower.program);
  answer.protocol_version = slot->borrower.protocol_version;
  const int fd = page.get();
  reply(protocol::reply_bytes(answer), {&fd, 1});
}

void Session::get_device_counters(const MessageHeader& request, ConstBytes message) {
  const auto counters = host_.device_counters(read_as<protocol::DeviceRequest>(message).device_index);
  protocol::DeviceCountersReply answer{};
  answer.header = reply_header(request);
  answer.link_downed = counters.link_downed;
  std::copy(counters.qps.begin(), counters.qps.end(), answer.qps);
  reply(protocol::bytes_of(answer));
}

void Session::get_cm_status(const MessageHeader& request, ConstBytes) {
  const protocol::CmStatusReply answer{reply_header(request), status_of(host_.connection_management())};
  reply(protocol::bytes_of(answer));
}

void Session::links_changed() {
  if (!greeted_ || closing_) return;
  links_outdated_ = true;
  push_links();
}

void Session::push_links() {
  if (!links_outdated_ || event_unseen_) return;
  const auto event = request_header(MessageType::kLinksChanged, ++event_sequence_, version_);
  const int file = host_.link_file();
  if (agent_client::send_message(events_.get(), protocol::bytes_of(event), {&file, 1})) {
    links_outdated_ = false;
    event_unseen_ = true;
  }
}

void Session::on_event_socket(uint32_t) {
  for (int i = 0; i < kMessagesPerRound && !closing_; ++i) {
    protocol::PeerMessage message{};
    const auto received =
        agent_client::receive_message(events_.get(), std::as_writable_bytes(std::span(&message, 1)), 0);
    if (!received && received.error().code == EAGAIN) return;
    if (!received || received->bytes == 0) return close();
    take_event_answer(message, received->bytes);
  }
}

void Session::take_event_answer(const protocol::PeerMessage& message, size_t bytes) {
  if (message.header.type == static_cast<uint16_t>(MessageType::kAskPeer)) {
    if (bytes == sizeof message) host_.ask_for_peer(id_, message.domain, message.slot);
  } else if (message.header.type == static_cast<uint16_t>(MessageType::kPeerSeen)) {
    if (peers_unseen_ > 0) --peers_unseen_;
  } else if (message.header.sequence == event_sequence_) {  // else it is not what we wait for, whatever it is
    event_unseen_ = false;
    push_links();
  }
}

bool Session::tell_peer(agent_client::DomainPeer peer) {
  if (closing_ || peers_unseen_ >= protocol::kMostPeersUnseen) return false;
  protocol::PeerMessage message{};
  message.header = request_header(MessageType::kPeer, 0, version_);
  message.header.error = peer.error;
  message.domain = peer.domain;
  message.slot = peer.slot;
  message.asked = peer.asked ? 1 : 0;
  const int fd = peer.socket.get();
  const auto sent =
      agent_client::send_message(events_.get(), protocol::bytes_of(message), {&fd, peer.socket ? 1u : 0u});
  if (sent) ++peers_unseen_;
  return sent.has_value();
}

void Session::reply(ConstBytes message, std::span<const int> fds) {
  if (const auto sent = agent_client::send_message(socket_.get(), message, fds); !sent) {
    log_info("client {} does not take its answer (errno {}): dropped", peer_.pid, sent.error().code);
    close();
  }
}

void Session::reply_plain(const MessageHeader& request) {
  const protocol::PlainReply answer{reply_header(request)};
  reply(protocol::bytes_of(answer));
}

void Session::reply_error(const MessageHeader& request, int error, std::string_view text) {
  protocol::ErrorReply answer{};
  answer.header = reply_header(request, error);
  protocol::store_text(answer.text, text);
  reply(protocol::bytes_of(answer));
}

void Session::reply_outcome(const MessageHeader& request, const agent_client::AdminResult<void>& outcome) {
  if (!outcome) return reply_error(request, outcome.error().code, outcome.error().text);
  reply_plain(request);
}

void Session::close() {
  if (std::exchange(closing_, true)) return;
  host_.close_session(id_);
}

}  // namespace verbena::agent
