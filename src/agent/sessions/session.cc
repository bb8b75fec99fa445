// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/session.h"

#include "base/text.h"

namespace verbena::agent {
namespace {

using protocol::MessageHeader;
using protocol::MessageType;
using protocol::read_as;
using protocol::TraceCall;

// Maximum number of descriptors in a reply.
constexpr size_t kMaxFilesOfReply = 3;

// Number of descriptors in the reply to a request with a LaterResult.
constexpr size_t kFilesOfLaterReply = 1;

// Maximum time for which a request waits until its user's programs have received their descriptors.
constexpr Duration kPatience = std::chrono::seconds(5);

bool is_one_of(std::span<const MessageType> types, ConstBytes message) {
  const uint16_t type = read_as<MessageHeader>(message).type;
  return std::ranges::any_of(types, [&](MessageType one) { return static_cast<uint16_t>(one) == type; });
}

// Whether the reply to this request may have descriptors. Other requests need not wait until the user's
// programs have received theirs.
bool brings_descriptors(ConstBytes message) {
  static constexpr MessageType kThatDo[] = {
      MessageType::kHello,          MessageType::kGetLinks,          MessageType::kJoinGroup,
      MessageType::kTakeSlot,       MessageType::kGetStatus,         MessageType::kGetSlotStatus,
      MessageType::kGetCaptureNews, MessageType::kMadOpenPort,       MessageType::kGetCmIds,
      MessageType::kGetKeptTrace,   MessageType::kGetConnectionTrace};
  return is_one_of(kThatDo, message);
}

// Whether the agent may have to close its copy of a descriptor when it has sent the reply. kJoinGroup counts
// its socket itself.
bool leaves_copy(ConstBytes message) {
  static constexpr MessageType kThatDo[] = {MessageType::kHello,        MessageType::kTakeSlot,
                                            MessageType::kMadOpenPort,  MessageType::kGetCmIds,
                                            MessageType::kGetKeptTrace, MessageType::kGetConnectionTrace};
  return is_one_of(kThatDo, message);
}

// Whether there was no descriptor or memory for a pidfd.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

// Describes a method that carries out a request.
template <class Method>
struct Traits;
template <class Role, class Result, class Request_, class... Descriptor>
struct Traits<Result (Role::*)(const Lessee&, const Request_&, Descriptor...)> {
  using Message = Request_;
  static constexpr bool kTakesDescriptor = sizeof...(Descriptor) == 1;
};

}  // namespace

// A request with a LaterResult. Its destructor closes the session if that still awaits the result.
struct Session::Awaited {
  explicit Awaited(std::weak_ptr<Session*> by) : session(std::move(by)) {}
  ~Awaited() {
    if (const auto still = session.lock()) survive_lack_of_memory([&] { (*still)->close(); });
  }
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;

  const std::weak_ptr<Session*> session;
};

template <auto Role, auto Method>
constexpr Session::Request Session::request(MessageType type) {
  using Of = Traits<decltype(Method)>;
  using Message = typename Of::Message;
  return {type, sizeof(Message), Of::kTakesDescriptor,
          [](Session& session, const MessageHeader& header, ConstBytes message,
             [[maybe_unused]] ClientFile descriptor) {
            const auto request = read_as<Message>(message);
            auto& role = session.parts_.requests.*Role;
            if constexpr (Of::kTakesDescriptor) {
              session.answer(header, (role.*Method)(session.client_, request, std::move(descriptor)));
            } else {
              session.answer(header, (role.*Method)(session.client_, request));
            }
          }};
}

template <auto Method, TraceCall Call>
constexpr Session::Request Session::cm_request(MessageType type) {
  using Of = RequestMethod<decltype(Method)>;
  return {type, sizeof(typename Of::Message), Of::kTakesDescriptor,
          [](Session& session, const MessageHeader& header, ConstBytes message, ClientFile descriptor) {
            session.connection_management().carry_out<Method, Call>(header, message, std::move(descriptor));
          }};
}

const Session::Request Session::kRequests[] = {
    {MessageType::kHello, sizeof(protocol::HelloRequest), true,
     [](Session& session, const MessageHeader&, ConstBytes message, ClientFile takeover_state) {
       session.hello(read_as<protocol::HelloRequest>(message), std::move(takeover_state));
     }},
    request<&Requests::links, &LinkRequests::get_links>(MessageType::kGetLinks),
    request<&Requests::links, &LinkRequests::add_link>(MessageType::kAddLink),
    request<&Requests::links, &LinkRequests::delete_link>(MessageType::kDeleteLink),
    request<&Requests::links, &LinkRequests::set_peers>(MessageType::kSetPeers),
    request<&Requests::links, &LinkRequests::join_group>(MessageType::kJoinGroup),
    request<&Requests::slots, &SlotRequests::take_slot>(MessageType::kTakeSlot),
    request<&Requests::slots, &SlotRequests::keep_slot>(MessageType::kKeepSlot),
    request<&Requests::slots, &SlotRequests::claim_slot>(MessageType::kClaimSlot),
    request<&Requests::slots, &SlotRequests::return_slot>(MessageType::kReturnSlot),
    request<&Requests::domains, &DomainRequests::open_domain>(MessageType::kOpenDomain),
    request<&Requests::domains, &DomainRequests::close_domain>(MessageType::kCloseDomain),
    request<&Requests::status, &StatusRequests::get_status>(MessageType::kGetStatus),
    request<&Requests::status, &StatusRequests::get_slot_status>(MessageType::kGetSlotStatus),
    request<&Requests::status, &StatusRequests::get_device_counters>(MessageType::kGetDeviceCounters),
    request<&Requests::captures, &CaptureRequests::start_capture>(MessageType::kStartCapture),
    request<&Requests::captures, &CaptureRequests::get_capture_news>(MessageType::kGetCaptureNews),
    request<&Requests::status, &StatusRequests::get_cm_status>(MessageType::kGetCmStatus),
    request<&Requests::mads, &MadDispatcher::get_port>(MessageType::kMadGetPort),
    request<&Requests::mads, &MadDispatcher::open_port>(MessageType::kMadOpenPort),
    request<&Requests::mads, &MadDispatcher::add_agent>(MessageType::kMadRegister),
    request<&Requests::mads, &MadDispatcher::remove_agent>(MessageType::kMadUnregister),
    request<&Requests::status, &StatusRequests::get_cm_ids>(MessageType::kGetCmIds),
    request<&Requests::links, &LinkRequests::rename_link>(MessageType::kRenameLink),
    request<&Requests::traces, &TraceRequests::get_kept_trace>(MessageType::kGetKeptTrace),
    request<&Requests::traces, &TraceRequests::get_connection_trace>(MessageType::kGetConnectionTrace),
    request<&Requests::traces, &TraceRequests::start_trace>(MessageType::kStartTrace),
    cm_request<&ClientRequests::open_channel>(MessageType::kCmOpenChannel),
    cm_request<&ClientRequests::close_channel>(MessageType::kCmCloseChannel),
    cm_request<&ClientRequests::create>(MessageType::kCmCreateId),
    cm_request<&ClientRequests::destroy, TraceCall::kDestroy>(MessageType::kCmDestroyId),
    cm_request<&ClientRequests::bind, TraceCall::kBind>(MessageType::kCmBind),
    cm_request<&ClientRequests::resolve_address, TraceCall::kResolveAddress>(MessageType::kCmResolveAddress),
    cm_request<&ClientRequests::resolve_route, TraceCall::kResolveRoute>(MessageType::kCmResolveRoute),
    cm_request<&ClientRequests::listen, TraceCall::kListen>(MessageType::kCmListen),
    cm_request<&ClientRequests::connect, TraceCall::kConnect>(MessageType::kCmConnect),
    cm_request<&ClientRequests::accept, TraceCall::kAccept>(MessageType::kCmAccept),
    cm_request<&ClientRequests::reject, TraceCall::kReject>(MessageType::kCmReject),
    cm_request<&ClientRequests::establish, TraceCall::kNotify>(MessageType::kCmEstablish),
    cm_request<&ClientRequests::disconnect, TraceCall::kDisconnect>(MessageType::kCmDisconnect),
    cm_request<&ClientRequests::set_option>(MessageType::kCmSetOption),
    cm_request<&ClientRequests::join, TraceCall::kJoin>(MessageType::kCmJoin),
    cm_request<&ClientRequests::leave, TraceCall::kLeave>(MessageType::kCmLeave),
    cm_request<&ClientRequests::migrate>(MessageType::kCmMigrateId),
    cm_request<&ClientRequests::restore>(MessageType::kCmRestoreId),
};

Session::Session(const Parts& parts, uint64_t id, UniqueFd socket, const ucred& peer, QuotaShare share)
    : parts_(parts),
      client_{.session = id,
              .uid = peer.uid,
              .pid = peer.pid,
              .program = {},
              .protocol_version = protocol::kProtocolVersion},
      socket_(parts.sockets, peer.uid, std::move(socket), ClientSockets::For::kReplies, share),
      events_(parts.loop, parts.sockets, peer.uid, parts.links, *this, share) {
  UniqueFd process = watch_peer(socket_.get(), peer.pid);
  broken_ = !process && is_shortage(errno);
  client_.process = parts.sockets.closer().share(peer.uid, std::move(process), std::move(share));
  parts_.loop.watch_for(peer.uid, socket_.get(), EPOLLIN,
                        [this](uint32_t events) { return take_events(events); });
  // From Linux 6.16 on, processes that have ended have pidfds, too.
  if (!client_.process || has_ended(client_.process->get())) {  // so that its number may be another's
    client_.process = nullptr;
    client_.pid = 0;
    return;
  }
  try {
    // Watches the process, because other processes may have inherited its socket. To end the watch may take
    // as long as the user likes (epoll(7)).
    parts_.loop.watch_for(peer.uid, client_.process->get(), EPOLLIN, [this](uint32_t) {
      close();
      return false;
    });
  } catch (...) {
    parts_.loop.forget(socket_.get());  // the destructor does not run
    throw;
  }
}

Session::~Session() {
  parts_.loop.forget(socket_.get());
  if (client_.process) parts_.loop.forget(client_.process->get());
  end_wait();
  end_awaiting();
  if (cm_) parts_.connection_management.gone_clients().add(std::move(cm_));
}

// A client whose request there is no memory for is disconnected: the request may be half done. So is one that
// there was no descriptor to watch for.
bool Session::take_events(uint32_t events) {
  bool has_more = false;
  if (!broken_) broken_ = !survive_lack_of_memory([&] { has_more = on_readable(events); });
  if (broken_) close();
  return has_more && !broken_;
}

bool Session::on_readable(uint32_t events) {
  if ((pending_hello_ || wait_ || awaiting_) && (events & (EPOLLHUP | EPOLLERR)) != 0) close();
  if (closing_ || pending_hello_) return false;
  // If the client has read its replies, there is room for other clients.
  if ((events & EPOLLOUT) != 0 && socket_.is_read()) listen();
  if (awaiting_) return false;
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

// Watches for requests unless a result is awaited, and for the client's reading while descriptors are unread.
void Session::listen() {
  if (pending_hello_ || closing_) return;
  const uint32_t requests = awaiting_ ? 0u : uint32_t{EPOLLIN};
  parts_.loop.set_events(socket_.get(), requests | (socket_.is_read() ? 0u : uint32_t{EPOLLOUT}));
}

// A request that came at `since` and makes a file is refused only if the user's programs still hold others.
bool Session::are_files_known(ConstBytes message, TimePoint since) const {
  const uint16_t type = read_as<MessageHeader>(message).type;
  const auto is = [&](MessageType one) { return type == static_cast<uint16_t>(one); };
  if (is(MessageType::kGetConnectionTrace)) {
    return parts_.connection_management.traces().readers().is_known(client_.uid, 0, since);
  }
  if (is(MessageType::kGetKeptTrace)) return parts_.sockets.files().is_known(client_.uid, 0, since);
  return !is(MessageType::kGetCmIds) || parts_.sockets.files().is_known(client_.uid, client_.session, since);
}

// A program that starts at once with hundreds of its user's gets its answer a moment later. A program whose
// user's programs receive nothing gets an error.
bool Session::may_go_on(ConstBytes message, bool has_files) {
  const bool may_answer =
      !brings_descriptors(message) || socket_.is_clogged() || socket_.may_send(kMaxFilesOfReply);
  const bool takes_slot =
      read_as<MessageHeader>(message).type == static_cast<uint16_t>(MessageType::kTakeSlot);
  const bool may_take = !takes_slot || !parts_.slots.is_behind(client_.uid);
  const TimePoint now = MonotonicClock::now();
  const TimePoint until = wait_ ? wait_->until : now + kPatience;
  const ForeignCloser& closer = parts_.sockets.closer();
  const bool may_bring = !has_files || closer.allows(client_.uid);
  const bool may_leave = !leaves_copy(message) || closer.may_receive(client_.uid);
  const bool has_room =
      may_answer && may_take && may_bring && may_leave && are_files_known(message, until - kPatience);
  end_wait();
  if (has_room || now >= until) return true;
  const int socket = socket_.get();
  wait_ = {parts_.sockets.await_room(client_.uid, socket), until, {}};
  wait_->timer =
      parts_.loop.at_for(client_.uid, until, [this, socket] { parts_.loop.set_events(socket, EPOLLIN); });
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

std::optional<Session::Fault> Session::find_fault(const MessageHeader& header, ConstBytes message,
                                                  bool is_longer) const {
  if (message.size() < sizeof header) return Fault{EBADMSG, "shorter than a header"};
  if (header.magic != protocol::kProtocolMagic) {
    return Fault{EPROTONOSUPPORT, "this is no message of the agent's protocol"};
  }
  if (!protocol::is_neighbour(header.version)) return std::nullopt;  // refuse_version() rejects it
  if (is_longer) return Fault{EMSGSIZE, "longer than any request"};
  const Request* request = find_request(header.type);
  if (request == nullptr) return Fault{EOPNOTSUPP, "no such request"};
  const bool fits = header.version > protocol::kProtocolVersion ? message.size() >= request->bytes
                                                                : message.size() == request->bytes;
  if (!fits) return Fault{EBADMSG, "of the wrong length"};
  const bool is_hello = header.type == static_cast<uint16_t>(MessageType::kHello);
  if (is_hello == greeted_) return Fault{EPROTO, is_hello ? "hello was said already" : "say hello first"};
  return std::nullopt;
}

// Handles a message, which stays in the socket until it is dropped there. A message must not be dropped while
// it has descriptors that the agent does not hold, because that closes them on this thread.
void Session::receive(ConstBytes message, bool is_longer, bool has_files) {
  static constexpr Fault kOverShare{EMFILE, "the agent has too many descriptors of this user open"};
  const auto header = read_as<MessageHeader>(message);
  const auto fault = find_fault(header, message, is_longer);
  const bool is_known = !fault && protocol::is_neighbour(header.version);
  ClientFile file;
  const bool is_over_share = has_files && !parts_.sockets.closer().allows(client_.uid);
  if (has_files) {
    if (fault) return drop_with_files(header, *fault);
    if (!is_known || !find_request(header.type)->takes_descriptor) {
      return drop_with_files(header, {EBADMSG, "with unexpected descriptors"});
    }
    if (!parts_.sockets.closer().may_receive(client_.uid)) return drop_with_files(header, kOverShare);
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
  const bool may_leave = !leaves_copy(message) || parts_.sockets.closer().may_receive(client_.uid);
  if (is_over_share || !may_leave) return send_error(header, kOverShare.error, kOverShare.text);
  if (socket_.is_clogged()) {
    log_info("client {} does not take the descriptors that it has asked for: dropped", client_.pid);
    return close();
  }
  if (brings_descriptors(message) && !socket_.may_send(kMaxFilesOfReply)) {
    return send_error(header, EMFILE, "programs of this user have not taken the descriptors they were sent");
  }
  find_request(header.type)->carry_out(*this, header, message, std::move(file));
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
  log_info("client {} sends descriptors that nothing expects: dropped", client_.pid);
  send_error(header, fault.error, fault.text);
  close();
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

CmClient& Session::connection_management() {
  CmClient::Host& host = *this;
  if (!cm_) cm_ = std::make_unique<CmClient>(parts_.connection_management, host);
  return *cm_;
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
  auto client_end = events_.open(client_.protocol_version);
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
  reply.keeps = close_elsewhere(std::move(*client_end));
  reply.fds = {reply.keeps->get(), parts_.links.file()};
  // The takeover state has all users' sockets, so only processes of the agent's own user get it.
  if (client_.uid == ::geteuid() && parts_.takeover_state.client_end() >= 0) {
    reply.fds.push_back(parts_.takeover_state.client_end());
  }
  answer(request, RequestResult<protocol::HelloReply>(std::move(reply)));
  parts_.takeover.greeted();
  parts_.agent.session_greeted(*this);
}

bool Session::is_standby() const {
  return greeted_ && client_.uid == ::geteuid() && client_.program == kStandbyName;
}

bool Session::is_mirror() const {
  return greeted_ && client_.program == kMirrorName;
}

// Has another thread close the descriptor when the last owner has released it. For a socket that is sent to
// the client: that may have received and closed its own copy by then, and the last close of a socket waits
// for the epoll(7) sets that contain it. The client can hold their locks for good.
std::shared_ptr<const UniqueFd> Session::close_elsewhere(UniqueFd fd) {
  ForeignCloser& closer = parts_.sockets.closer();
  return closer.share(client_.uid, std::move(fd), closer.count_received(client_.uid));
}

template <class Message>
void Session::answer(const MessageHeader& request, RequestResult<Message> outcome) {
  if (!outcome) return send_error(request, outcome.error().code, outcome.error().text);
  outcome->message.header = reply_header(request);
  const auto last = close_elsewhere(std::move(outcome->last_fd));
  if (last) outcome->fds.push_back(last->get());
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

// The reply's descriptor counts as sent while the result is awaited. Otherwise any number of sessions could
// have theirs sent later, beyond the user's share.
template <class Message>
void Session::answer(const MessageHeader& request, LaterResult<Message> begin) {
  auto self = std::make_shared<Session*>(this);
  const auto awaited = std::make_shared<Awaited>(self);
  parts_.sockets.sent(client_.uid, kFilesOfLaterReply, ClientSockets::For::kReplies);
  awaiting_ = std::move(self);
  listen();
  begin([awaited, request](RequestResult<Message> outcome) {
    const auto still = awaited->session.lock();
    if (!still || (*still)->closing_) return;
    Session& session = **still;
    session.end_awaiting();
    if (!survive_lack_of_memory([&] { session.answer(request, std::move(outcome)); })) session.close();
    session.listen();
  });
}

void Session::end_awaiting() {
  if (!awaiting_) return;
  awaiting_.reset();
  parts_.sockets.taken(client_.uid, kFilesOfLaterReply, ClientSockets::For::kReplies);
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
  Result<void> sent;
  parts_.loop.send_to(client_.uid, [&] { sent = socket_.send(message, fds); });
  if (!sent) {
    log_info("client {} does not take its answer (errno {}): dropped", client_.pid, sent.error().code);
    close();
  } else if (!fds.empty()) {
    listen();
  }
}

// If this throws std::bad_alloc, nothing has changed, and the loop tries again.
void Session::close() {
  if (closing_) return;
  parts_.agent.close_session(client_.session);
  closing_ = true;
  events_.stop();
  end_wait();
  if (client_.process)
    parts_.loop.forget(client_.process->get());  // it would be reported until the session is destroyed
}

}  // namespace verbena::agent
