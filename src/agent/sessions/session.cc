// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/session.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <type_traits>
#include <utility>

#include <unistd.h>

#include "agent/lack_of_memory.h"
#include "agent/sessions/acting_for.h"
#include "agent/sessions/helper_names.h"
#include "agent/slots/process.h"
#include "base/format.h"
#include "base/log.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

using protocol::MessageHeader;
using protocol::MessageType;
using protocol::read_as;

// Maximum number of descriptors in a reply.
constexpr size_t kMaxFilesOfReply = 3;

// Maximum time for which a request waits until its user's programs have received their descriptors.
constexpr Duration kPatience = std::chrono::seconds(5);

// Whether the reply to this request may have descriptors. Other requests need not wait until the user's
// programs have received theirs.
bool brings_descriptors(ConstBytes message) {
  static constexpr MessageType kThatDo[] = {
      MessageType::kHello,          MessageType::kGetLinks,          MessageType::kJoinGroup,
      MessageType::kTakeSlot,       MessageType::kGetStatus,         MessageType::kGetSlotStatus,
      MessageType::kGetCaptureNews, MessageType::kMadOpenPort,       MessageType::kGetCmIds,
      MessageType::kGetKeptTrace,   MessageType::kGetConnectionTrace};
  const uint16_t type = read_as<MessageHeader>(message).type;
  return std::ranges::any_of(kThatDo, [&](MessageType one) { return static_cast<uint16_t>(one) == type; });
}

template <class Role, class Message, class Method>
constexpr bool takes_descriptor =
    std::is_invocable_v<Method, Role&, const Lessee&, const Message&, ClientFile>;

}  // namespace

struct Session::Request {
  MessageType type;
  size_t bytes;
  bool takes_descriptor;
  void (*carry_out)(Session& session, const MessageHeader& header, ConstBytes message, ClientFile descriptor);
};

template <class Message, auto Role, auto Method>
void Session::carry_out(Session& session, const MessageHeader& header, ConstBytes message,
                        [[maybe_unused]] ClientFile descriptor) {
  const auto request = read_as<Message>(message);
  auto& role = session.parts_.requests.*Role;
  if constexpr (takes_descriptor<decltype(role), Message, decltype(Method)>) {
    session.answer(header, (role.*Method)(session.client_, request, std::move(descriptor)));
  } else {
    session.answer(header, (role.*Method)(session.client_, request));
  }
}

const Session::Request Session::kRequests[] = {
#define VERBENA_REQUEST(type, message, role, Role, method)                                      \
  {                                                                                             \
    MessageType::type, sizeof(protocol::message),                                               \
        takes_descriptor<Role##Requests, protocol::message, decltype(&Role##Requests::method)>, \
        &Session::carry_out<protocol::message, &Requests::role, &Role##Requests::method>        \
  }
    VERBENA_REQUEST(kGetLinks, GetLinksRequest, links, Link, get_links),
    VERBENA_REQUEST(kAddLink, LinkRequest, links, Link, add_link),
    VERBENA_REQUEST(kDeleteLink, LinkRequest, links, Link, delete_link),
    VERBENA_REQUEST(kSetPeers, PeersRequest, links, Link, set_peers),
    VERBENA_REQUEST(kJoinGroup, GroupRequest, links, Link, join_group),
    VERBENA_REQUEST(kTakeSlot, TakeSlotRequest, slots, Slot, take_slot),
    VERBENA_REQUEST(kKeepSlot, SlotRequest, slots, Slot, keep_slot),
    VERBENA_REQUEST(kClaimSlot, ClaimSlotRequest, slots, Slot, claim_slot),
    VERBENA_REQUEST(kReturnSlot, SlotRequest, slots, Slot, return_slot),
    VERBENA_REQUEST(kOpenDomain, DomainRequest, domains, Domain, open_domain),
    VERBENA_REQUEST(kCloseDomain, DomainRequest, domains, Domain, close_domain),
    VERBENA_REQUEST(kGetStatus, GetStatusRequest, status, Status, get_status),
    VERBENA_REQUEST(kGetSlotStatus, SlotRequest, status, Status, get_slot_status),
    VERBENA_REQUEST(kGetDeviceCounters, DeviceRequest, status, Status, get_device_counters),
    VERBENA_REQUEST(kStartCapture, StartCaptureRequest, captures, Capture, start_capture),
    VERBENA_REQUEST(kGetCaptureNews, GetCaptureNewsRequest, captures, Capture, get_capture_news),
    VERBENA_REQUEST(kGetCmStatus, GetCmStatusRequest, status, Status, get_cm_status),
    VERBENA_REQUEST(kMadGetPort, DeviceRequest, mads, Mad, get_port),
    VERBENA_REQUEST(kMadOpenPort, DeviceRequest, mads, Mad, open_port),
    VERBENA_REQUEST(kMadRegister, MadRegisterRequest, mads, Mad, add_agent),
    VERBENA_REQUEST(kMadUnregister, MadRegisterRequest, mads, Mad, remove_agent),
    VERBENA_REQUEST(kGetCmIds, GetCmIdsRequest, status, Status, get_cm_ids),
    VERBENA_REQUEST(kRenameLink, RenameRequest, links, Link, rename_link),
    VERBENA_REQUEST(kGetKeptTrace, KeptTraceRequest, traces, Trace, get_kept_trace),
    VERBENA_REQUEST(kGetConnectionTrace, ConnectionTraceRequest, traces, Trace, get_connection_trace),
    VERBENA_REQUEST(kStartTrace, StartTraceRequest, traces, Trace, start_trace),
#undef VERBENA_REQUEST
};

Session::Session(const Parts& parts, uint64_t id, UniqueFd socket, const ucred& peer, QuotaShare share)
    : parts_(parts),
      client_{id, peer.uid, peer.pid, start_time_of(peer.pid), {}, protocol::kProtocolVersion},
      socket_(parts.sockets, peer.uid, std::move(socket), ClientSockets::For::kReplies, share),
      events_(parts.loop, parts.sockets, peer.uid, parts.links,
              {.on_ask_peer =
                   [this](uint64_t domain, uint32_t slot) {
                     parts_.requests.domains.ask_for_peer(client_.session, domain, slot);
                   },
               .on_ask_channel =
                   [this](uint32_t own_slot, uint32_t peer_slot) {
                     parts_.requests.channels.ask_for_channel(client_.session, own_slot, peer_slot);
                   },
               .on_end = [this] { close(); }},
              std::move(share)) {
  parts_.loop.watch_for(peer.uid, socket_.get(), EPOLLIN,
                        [this](uint32_t events) { return take_events(events); });
  client_.process = share_process(watch_peer(socket_.get(), peer.pid));
  // Watches the process, because other processes may have inherited its socket.
  if (client_.process) parts_.loop.watch(client_.process->get(), EPOLLIN, [this](uint32_t) { close(); });
}

Session::~Session() {
  parts_.loop.forget(socket_.get());
  if (client_.process) parts_.loop.forget(client_.process->get());
  end_wait();
  if (cm_) parts_.connection_management.gone_clients().add(std::move(cm_));
}

// A client whose request there is no memory for is disconnected: the request may be half done.
bool Session::take_events(uint32_t events) {
  bool has_more = false;
  if (!survive_lack_of_memory([&] { has_more = on_readable(events); })) close();
  return has_more;
}

bool Session::on_readable(uint32_t events) {
  if ((pending_hello_ || wait_) && (events & (EPOLLHUP | EPOLLERR)) != 0) close();
  if (closing_ || pending_hello_) return false;
  // If the client has read its replies, there is room for other clients.
  if ((events & EPOLLOUT) != 0 && socket_.is_read()) listen();
  if (go_on()) return true;
  if (wait_ && (events & EPOLLIN) == 0) return false;
  std::byte buffer[protocol::kMaxAgentMessageBytes];
  const auto seen = socket_.look(buffer);
  if (!seen && seen.error().code == EAGAIN) return false;
  if (!seen || seen->bytes == 0) {
    close();
    return false;
  }
  const ConstBytes message(buffer, std::min(seen->bytes, sizeof buffer));
  if (!may_go_on(message, seen->has_files)) return false;
  receive(ConstBytes(buffer, seen->bytes), seen->is_longer, seen->has_files);
  return true;
}

// Watches for requests, and for the client's reading while descriptors are unread.
void Session::listen() {
  if (pending_hello_ || closing_) return;
  parts_.loop.set_events(socket_.get(), EPOLLIN | (socket_.is_read() ? 0u : uint32_t{EPOLLOUT}));
}

// A program that starts at once with hundreds of its user's gets its answer a moment later. A program whose
// user's programs receive nothing gets an error.
bool Session::may_go_on(ConstBytes message, bool has_files) {
  const bool may_answer =
      !brings_descriptors(message) || socket_.is_clogged() || socket_.may_send(kMaxFilesOfReply);
  const bool has_room = may_answer && (!has_files || parts_.sockets.closer().allows(client_.uid));
  const TimePoint now = MonotonicClock::now();
  const TimePoint until = wait_ ? wait_->until : now + kPatience;
  end_wait();
  if (has_room || now >= until) return true;
  const int socket = socket_.get();
  const auto timer = parts_.loop.at(until, [this, socket] { parts_.loop.set_events(socket, EPOLLIN); });
  wait_ = {parts_.sockets.await_room(client_.uid, socket), until, timer};
  parts_.loop.set_events(socket, socket_.is_read() ? 0u : uint32_t{EPOLLOUT});
  return false;
}

void Session::end_wait() {
  if (!wait_) return;
  parts_.sockets.cancel_wait(client_.uid, wait_->ticket);
  parts_.loop.cancel(wait_->timer);
  wait_.reset();
}

const Session::Request* Session::find_request(uint16_t type) {
  const auto* found = std::ranges::find(kRequests, static_cast<MessageType>(type), &Request::type);
  return found != std::end(kRequests) ? found : nullptr;
}

Session::Shape Session::shape_of(uint16_t type) {
  if (type == static_cast<uint16_t>(MessageType::kHello)) return {sizeof(protocol::HelloRequest), true};
  if (const size_t bytes = CmClient::request_bytes(type); bytes != 0) {
    return {bytes, CmClient::takes_descriptor(type)};
  }
  const Request* request = find_request(type);
  return request != nullptr ? Shape{request->bytes, request->takes_descriptor} : Shape();
}

std::optional<Session::Fault> Session::find_fault(const MessageHeader& header, ConstBytes message,
                                                  bool is_longer) const {
  if (message.size() < sizeof header) return Fault{EBADMSG, "shorter than a header"};
  if (header.magic != protocol::kProtocolMagic) {
    return Fault{EPROTONOSUPPORT, "this is no message of the agent's protocol"};
  }
  if (!protocol::is_neighbour(header.version)) return std::nullopt;  // refuse_version() rejects it
  if (is_longer) return Fault{EMSGSIZE, "longer than any request"};
  const Shape shape = shape_of(header.type);
  if (shape.bytes == 0) return Fault{EOPNOTSUPP, "no such request"};
  const bool fits = header.version > protocol::kProtocolVersion ? message.size() >= shape.bytes
                                                                : message.size() == shape.bytes;
  if (!fits) return Fault{EBADMSG, "of the wrong length"};
  const bool is_hello = header.type == static_cast<uint16_t>(MessageType::kHello);
  if (is_hello == greeted_) return Fault{EPROTO, is_hello ? "hello was said already" : "say hello first"};
  return std::nullopt;
}

// Handles a message, which stays in the socket until it is dropped there. A message must not be dropped while
// it has descriptors that the agent does not hold, because that closes them on this thread.
void Session::receive(ConstBytes message, bool is_longer, bool has_files) {
  const auto header = read_as<MessageHeader>(message);
  const auto fault = find_fault(header, message, is_longer);
  const bool is_known = !fault && protocol::is_neighbour(header.version);
  ClientFile file;
  if (has_files) {
    if (fault) return drop_with_files(header, *fault);
    if (!is_known || !shape_of(header.type).takes_descriptor) {
      return drop_with_files(header, {EBADMSG, "with unexpected descriptors"});
    }
    if (!parts_.sockets.closer().allows(client_.uid)) {
      return drop_with_files(header, {EMFILE, "the agent has too many descriptors of this user open"});
    }
    auto taken = take_file();
    if (!taken) {
      const bool ours = taken.error().code == EMFILE;
      return drop_with_files(header, {taken.error().code, ours ? "the agent has run out of descriptors"
                                                               : "with more than one descriptor"});
    }
    file = std::move(*taken);
  }
  socket_.drop();
  if (fault) return send_error(header, fault->error, fault->text);
  if (!is_known) return refuse_version(header);
  if (socket_.is_clogged()) {
    log_info("client {} does not take the descriptors that it has asked for: dropped", client_.pid);
    return close();
  }
  if (brings_descriptors(message) && !socket_.may_send(kMaxFilesOfReply)) {
    return send_error(header, EMFILE, "programs of this user have not taken the descriptors they were sent");
  }
  handle(header, message, std::move(file));
}

// Receives the single descriptor of the message that was looked at. EBADMSG: it has more. EMFILE: the agent
// has none left.
Result<ClientFile> Session::take_file() {
  std::byte again[1];
  auto seen = socket_.look(again, true);
  if (!seen) return fail(EBADMSG);
  if (!seen->file) return fail(EMFILE);
  if (seen->has_files) return fail(EBADMSG);
  return std::move(seen->file);
}

// Sends the reason, and closes the socket with the message in it.
void Session::drop_with_files(const MessageHeader& header, const Fault& fault) {
  log_info("client {} sends descriptors in vain: dropped", client_.pid);
  send_error(header, fault.error, fault.text);
  close();
}

void Session::handle(const MessageHeader& header, ConstBytes message, ClientFile descriptor) {
  if (header.type == static_cast<uint16_t>(MessageType::kHello)) {
    return hello(read_as<protocol::HelloRequest>(message), std::move(descriptor));
  }
  const Request* request = find_request(header.type);
  if (request == nullptr) return handle_cm(header, message, std::move(descriptor));
  request->carry_out(*this, header, message, std::move(descriptor));
}

// Reports the refusal at both ends: in the agent's log, and to the program in the reply. Either one may have
// to be upgraded or restarted.
void Session::refuse_version(const MessageHeader& request) {
  log_warning(
      "process {} speaks version {} of the agent's protocol, this agent (Verbena {}) version {}: refused",
      client_.pid, request.version, VERBENA_VERSION, protocol::kProtocolVersion);
  parts_.refused = {parts_.refused.count + 1, client_.pid, request.version};
  send_error(request, EPROTONOSUPPORT,
             verbena::format(
                 "the agent is of Verbena {} and speaks version {} of its protocol, this program version "
                 "{}: end the older of the two, and start it again",
                 VERBENA_VERSION, protocol::kProtocolVersion, request.version));
}

void Session::handle_cm(const MessageHeader& request, ConstBytes message, ClientFile descriptor) {
  CmClient::Host& host = *this;
  if (!cm_) cm_ = std::make_unique<CmClient>(parts_.connection_management, host);
  cm_->handle(request, message, std::move(descriptor));
}

// A REQ with another process's QPN would end that process's connection: its peer assumes that the QPN was
// reused. Processes of one user are not protected from each other.
bool Session::may_use_qpn(uint32_t qpn) const {
  return client_.uid == 0 || client_.uid == ::geteuid() || parts_.slots.is_qpn_of(qpn, client_.uid);
}

void Session::hello(const protocol::HelloRequest& request, ClientFile takeover_state) {
  client_.program = load_text(request.program);
  client_.protocol_version = protocol::common_version(request.header.version);
  // Descriptors in a takeover state become the agent's, so only one from its own user is accepted.
  if (takeover_state && client_.uid == ::geteuid())
    parts_.takeover.offer_state(takeover_state.take_trusted());
  pending_hello_ = request.header;
  if (parts_.takeover.is_settled()) {
    finish_hello();
  } else {
    parts_.loop.set_events(socket_.get(), 0);
  }
}

void Session::resume() {
  if (!pending_hello_) return;
  const ActingFor user(client_.uid);
  finish_hello();
  listen();
}

void Session::finish_hello() {
  const MessageHeader request = *std::exchange(pending_hello_, std::nullopt);
  if (!parts_.served.serves(client_.uid)) {
    return send_error(request, EPERM,
                      "the agent of this machine is there for another user (--serve-only): ask root");
  }
  client_.shares_port = parts_.served.leases_sockets_to(client_.uid);
  const auto client_end = events_.open(client_.protocol_version);
  if (!client_end) {
    return send_error(request, client_end.error().code, "the agent has run out of descriptors");
  }
  greeted_ = true;

  Reply<protocol::HelloReply> reply;
  reply.message.agent_pid = static_cast<uint32_t>(::getpid());
  reply.message.agent_uid = ::geteuid();
  store_text(reply.message.agent_version, VERBENA_VERSION);
  reply.message.capabilities =
      protocol::kServesXrcDomains | protocol::kServesConnectionManagement | protocol::kServesLongMads;
  reply.fds = {client_end->get(), parts_.links.file()};
  // The takeover state has all users' sockets, so only processes of the agent's own user get it.
  if (client_.uid == ::geteuid() && parts_.takeover_state.client_end() >= 0) {
    reply.fds.push_back(parts_.takeover_state.client_end());
  }
  answer(request, RequestResult<protocol::HelloReply>(std::move(reply)));
  parts_.takeover.greeted();
  parts_.on_greeted(*this);
}

bool Session::is_standby() const {
  return greeted_ && client_.uid == ::geteuid() && client_.program == kStandbyName;
}

bool Session::is_mirror() const {
  return greeted_ && client_.program == kMirrorName;
}

template <class Message>
void Session::answer(const MessageHeader& request, RequestResult<Message> outcome) {
  if (!outcome) return send_error(request, outcome.error().code, outcome.error().text);
  outcome->message.header = reply_header(request);
  if (outcome->last_fd) outcome->fds.push_back(outcome->last_fd.get());
  send(protocol::reply_bytes(outcome->message), outcome->fds);
}

template <class Message>
void Session::answer(const MessageHeader& request, SlicedResult<Message> slices) {
  going_on_ = [this, request, slices = std::move(slices)] {
    auto outcome = slices();
    if (outcome) answer(request, std::move(*outcome));
    return !outcome;
  };
  go_on();
}

bool Session::go_on() {
  if (going_on_) {
    if (!going_on_()) going_on_ = {};
    return true;
  }
  if (cm_ == nullptr || !cm_->is_busy()) return false;
  cm_->go_on();
  return true;
}

void Session::send_error(const MessageHeader& request, int error, std::string_view text) {
  protocol::ErrorReply reply{};
  reply.header = reply_header(request, error);
  store_text(reply.text, text);
  send(protocol::bytes_of(reply));
}

void Session::send(ConstBytes message, std::span<const int> fds) {
  if (const auto sent = socket_.send(message, fds); !sent) {
    log_info("client {} does not take its answer (errno {}): dropped", client_.pid, sent.error().code);
    close();
  } else if (!fds.empty()) {
    listen();
  }
}

void Session::close() {
  if (std::exchange(closing_, true)) return;
  events_.stop();
  end_wait();
  if (client_.process)
    parts_.loop.forget(client_.process->get());  // it would be reported until the session is destroyed
  parts_.close(client_.session);
}

}  // namespace verbena::agent
