// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/cm/connection_record.h"
#include "agent/cm/refusals.h"
#include "agent_client/message_socket.h"

namespace verbena::agent {
namespace {

// A user whom a root agent serves has at most so many identifiers in all his programs, so many events that
// these do not read, and so many channels: an eighth of the descriptors that the agent may have.
constexpr size_t kMaxIdentifiersOfStranger = 262144;
constexpr size_t kMaxWaitingEventsOfStranger = 262144;
size_t max_channels_of_stranger() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 8 : 0;
}

// The QP type of an identifier, as the kernel's ucma_get_qp_type() has it; 0: none.
uint8_t qp_type_of(const protocol::CmCreateRequest& request) {
  switch (request.port_space) {
    case RDMA_PS_TCP:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
    case RDMA_PS_IB:
      break;
    default:
      return 0;
  }
  for (const int type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
    if (request.qp_type == type) return request.qp_type;
  }
  return 0;
}

bool is_seqpacket(int socket) {
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) return false;
  int domain = 0;
  length = sizeof domain;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace

struct CmClient::Request {
  protocol::MessageType type;
  size_t bytes;
  void (*carry_out)(CmClient& client, const protocol::MessageHeader& header, ConstBytes message,
                    UniqueFd descriptor);
};

template <class Message, auto Method>
void CmClient::carry_out(CmClient& client, const protocol::MessageHeader& header, ConstBytes message,
                         [[maybe_unused]] UniqueFd descriptor) {
  Message request;
  std::memcpy(&request, message.data(), sizeof request);  // it is not shorter: the session has checked
  if constexpr (std::is_invocable_v<decltype(Method), CmClient&, const Message&, UniqueFd>) {
    client.answer(header, (client.*Method)(request, std::move(descriptor)));
  } else {
    client.answer(header, (client.*Method)(request));
  }
}

// In the order of their numbers.
const CmClient::Request CmClient::kRequests[] = {
#define VERBENA_REQUEST(type, message, method)                     \
  {                                                                \
    protocol::MessageType::type, sizeof(protocol::message),        \
        &CmClient::carry_out<protocol::message, &CmClient::method> \
  }
    VERBENA_REQUEST(kCmOpenChannel, CmChannelRequest, open_channel),
    VERBENA_REQUEST(kCmCloseChannel, CmChannelRequest, close_channel),
    VERBENA_REQUEST(kCmCreateId, CmCreateRequest, create),
    VERBENA_REQUEST(kCmDestroyId, CmIdRequest, destroy),
    VERBENA_REQUEST(kCmBind, CmBindRequest, bind),
    VERBENA_REQUEST(kCmResolveAddress, CmResolveRequest, resolve_address),
    VERBENA_REQUEST(kCmResolveRoute, CmIdRequest, resolve_route),
    VERBENA_REQUEST(kCmListen, CmListenRequest, listen),
    VERBENA_REQUEST(kCmConnect, CmConnectRequest, connect),
    VERBENA_REQUEST(kCmAccept, CmConnectRequest, accept),
    VERBENA_REQUEST(kCmReject, CmRejectRequest, reject),
    VERBENA_REQUEST(kCmEstablish, CmIdRequest, establish),
    VERBENA_REQUEST(kCmDisconnect, CmIdRequest, disconnect),
    VERBENA_REQUEST(kCmSetOption, CmOptionRequest, set_option),
    VERBENA_REQUEST(kCmJoin, CmJoinRequest, join),
    VERBENA_REQUEST(kCmLeave, CmLeaveRequest, leave),
    VERBENA_REQUEST(kCmMigrateId, CmMigrateRequest, migrate),
    VERBENA_REQUEST(kCmRestoreId, CmRestoreRequest, restore),
#undef VERBENA_REQUEST
};

CmClient::CmClient(CmService& service, Host& host) : service_(service), host_(host) {
  service_.join(*this);
}

CmClient::~CmClient() {
  service_.leave(*this);
  for (const auto& [number, id] : ids_) {
    // Of an XRC target that is destroyed nobody is told: other processes may have it open. Of one whose
    // process has died the peer shall hear.
    if (id->qp_type == IBV_QPT_XRC_RECV && id->connection != 0) {
      [[maybe_unused]] const auto said =
          service_.manager().disconnect(id->connection, {}, MonotonicClock::now());
    }
    discard(*id);
  }
  usage().channels -= channels_.size();
  service_.settle();
}

const CmClient::Request* CmClient::find_request(uint16_t type) {
  const auto first = static_cast<uint16_t>(kRequests[0].type);
  const size_t index = static_cast<uint16_t>(type - first);
  return index < std::size(kRequests) ? &kRequests[index] : nullptr;
}

size_t CmClient::request_bytes(uint16_t type) {
  const Request* request = find_request(type);
  return request != nullptr ? request->bytes : 0;
}

bool CmClient::takes_descriptor(uint16_t type) {
  return type == static_cast<uint16_t>(protocol::MessageType::kCmOpenChannel);
}

// Events that a request brings about come after its reply: so they find the program with its own state in
// order.
void CmClient::handle(const protocol::MessageHeader& header, ConstBytes message, UniqueFd descriptor) {
  handling_ = true;
  find_request(header.type)->carry_out(*this, header, message, std::move(descriptor));
  handling_ = false;
  flush_events();
  service_.settle();
}

void CmClient::answer(const protocol::MessageHeader& header, const Outcome& outcome) {
  if (!outcome) return host_.send_error(header, outcome.error().code, outcome.error().text);
  const protocol::PlainReply reply{protocol::reply_header(header)};
  host_.send_reply(protocol::bytes_of(reply));
}

void CmClient::answer(const protocol::MessageHeader& header, const AddressOutcome& outcome) {
  if (!outcome) return host_.send_error(header, outcome.error().code, outcome.error().text);
  const protocol::CmAddressReply reply{protocol::reply_header(header), *outcome};
  host_.send_reply(protocol::bytes_of(reply));
}

void CmClient::answer(const protocol::MessageHeader& header, const CountOutcome& outcome) {
  if (!outcome) return host_.send_error(header, outcome.error().code, outcome.error().text);
  const protocol::CmDestroyReply reply{protocol::reply_header(header), *outcome, 0};
  host_.send_reply(protocol::bytes_of(reply));
}

CmIdentifier* CmClient::find(uint32_t number) {
  const auto found = ids_.find(number);
  return found == ids_.end() ? nullptr : found->second.get();
}

EventChannel* CmClient::find_channel(uint32_t number) {
  const auto found = channels_.find(number);
  return found == channels_.end() ? nullptr : found->second.get();
}

CmClient::Outcome CmClient::open_channel(const protocol::CmChannelRequest& request, UniqueFd events) {
  if (channels_.contains(request.channel)) return refuse(EEXIST, "the channel is open already");
  const bool too_many =
      channels_.size() >= kMaxChannels || (is_strangers() && usage().channels >= max_channels_of_stranger());
  if (too_many) return refuse(EMFILE, "too many event channels");
  if (!events || !is_seqpacket(events.get())) {
    return refuse(EINVAL, "without a SOCK_SEQPACKET socket");
  }
  channels_[request.channel] =
      std::make_unique<EventChannel>(service_.loop(), std::move(events), request.generation,
                                     EventChannel::Tallies{waiting_events_, usage().waiting_events});
  ++usage().channels;
  return {};
}

// As when a program closes an event channel of the kernel's: the identifiers go with it.
CmClient::Outcome CmClient::close_channel(const protocol::CmChannelRequest& request) {
  const EventChannel* channel = find_channel(request.channel);
  if (channel == nullptr) return refuse(ENOENT, "no such channel");
  for (auto entry = ids_.begin(); channel->identifiers > 0 && entry != ids_.end();) {
    if (entry->second->channel != request.channel) {
      ++entry;
      continue;
    }
    discard(*entry->second);
    entry = ids_.erase(entry);
  }
  channels_.erase(request.channel);
  --usage().channels;
  return {};
}

bool CmClient::is_strangers() const {
  return host_.user() != ::geteuid() && host_.user() != 0;
}

bool CmClient::may_have_more() const {
  return ids_.size() < kMaxIdentifiers &&
         (!is_strangers() || usage().identifiers < kMaxIdentifiersOfStranger);
}

agent_client::AdminResult<CmIdentifier*> CmClient::make(const protocol::CmCreateRequest& request) {
  const bool is_own = request.id != 0 && (request.id & protocol::kCmAgentsNumber) == 0;
  if (!is_own || find(request.id) != nullptr) return refuse(EINVAL, "not a new number of the program's");
  if (find_channel(request.channel) == nullptr) return refuse(ENOENT, "no such channel");
  const uint8_t qp_type = qp_type_of(request);
  if (qp_type == 0) return refuse(EINVAL, "no such port space, or not with this type of QP");
  if (!may_have_more()) return refuse(ENOMEM, "too many identifiers");
  auto id = std::make_unique<CmIdentifier>();
  id->client = this;
  id->number = request.id;
  id->channel = request.channel;
  id->port_space = request.port_space;
  id->qp_type = qp_type;
  id->starting_psn = static_cast<uint32_t>(service_.random().below(1u << 24));
  return &keep(std::move(id));
}

// REQUIRES: its channel is there, and its number is new
CmIdentifier& CmClient::keep(std::unique_ptr<CmIdentifier> id) {
  ++usage().identifiers;
  ++find_channel(id->channel)->identifiers;
  return *(ids_[id->number] = std::move(id));
}

CmClient::Outcome CmClient::create(const protocol::CmCreateRequest& request) {
  const auto made = make(request);
  if (!made) return tl::unexpected(made.error());
  return {};
}

CmClient::CountOutcome CmClient::destroy(const protocol::CmIdRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (EventChannel* channel = find_channel(id->channel)) {
    id->events_sent -= static_cast<uint32_t>(channel->drop_events(id->number));
  }
  const uint32_t events = id->events_sent;
  erase(*id);
  return events;
}

void CmClient::erase(CmIdentifier& id) {
  const uint32_t number = id.number;
  discard(id);
  ids_.erase(number);
}

// Takes back what the identifier holds elsewhere. What its peer is owed is the manager's business from here.
void CmClient::discard(CmIdentifier& id) {
  if (id.resolving != 0) service_.neighbours().cancel(id.resolving);
  service_.release_port(id);
  if (id.connection != 0) {
    [[maybe_unused]] const auto destroyed = service_.manager().destroy(id.connection, MonotonicClock::now());
  }
  id.connection = 0;
  if (EventChannel* channel = find_channel(id.channel)) --channel->identifiers;
  --usage().identifiers;
  usage().groups -= id.groups.size();
}

CmClient::Outcome CmClient::set_option(const protocol::CmOptionRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  const bool is_new = id->state == CmState::kIdle;
  switch (request.option) {
    case RDMA_OPTION_ID_TOS:
      if (request.value > 0xff) return refuse(EINVAL, "no type of service");
      id->type_of_service = static_cast<uint8_t>(request.value);
      return {};
    case RDMA_OPTION_ID_REUSEADDR:
      if (!is_new && (request.value == 0 || id->state == CmState::kListen)) return wrong_state();
      id->reuse_address = request.value != 0;
      return {};
    case RDMA_OPTION_ID_AFONLY:
      if (!is_new && id->state != CmState::kBound) return wrong_state();
      id->own_family_only = request.value != 0;
      id->family_option_set = true;
      return {};
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      const bool has_acks = id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_SEND;
      if (!has_acks || request.value > 31) return refuse(EINVAL, "no ACK timeout, or not of this QP");
      id->ack_timeout = static_cast<uint8_t>(request.value);
      return {};
    }
    default:
      return refuse(ENOSYS, "no such option");
  }
}

CmClient::Outcome CmClient::migrate(const protocol::CmMigrateRequest& request) {
  CmIdentifier* id = find(request.id);
  EventChannel* to = find_channel(request.channel);
  if (id == nullptr || to == nullptr) return refuse(ENOENT, "no such identifier or channel");
  if (EventChannel* from = find_channel(id->channel)) {
    from->move_events(id->number, *to);
    --from->identifiers;
  }
  ++to->identifiers;
  id->channel = request.channel;
  if (id->listening_state) id->listening_state->unseen.clear();  // they were numbers of the other channel
  return {};
}

bool CmClient::has_room(CmIdentifier& listener) {
  if (!may_have_more()) return false;
  CmIdentifier::Listening& state = *listener.listening_state;
  if (state.unseen.size() < state.backlog) return true;
  const EventChannel* channel = find_channel(listener.channel);
  if (channel == nullptr) return false;
  const uint64_t taken = channel->taken();
  while (!state.unseen.empty() && state.unseen.front() <= taken) state.unseen.pop_front();
  return state.unseen.size() < state.backlog;
}

void CmClient::add_request(std::unique_ptr<CmIdentifier> id,
                           const protocol::ConnectionParameters& parameters) {
  CmIdentifier& listener = *find(id->number);
  do {  // after two billion requests the numbers begin again
    id->number = protocol::kCmAgentsNumber | next_agents_number_++;
  } while (find(id->number) != nullptr);
  id->channel = listener.channel;
  CmIdentifier& added = keep(std::move(id));
  protocol::CmEvent event = event_of(added, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
  event.listener = listener.number;
  event.parameters = parameters;
  event.flags |= protocol::kCmHasParameters;
  listener.listening_state->unseen.push_back(send(listener, event));
}

protocol::CmRoute CmClient::route_of(const CmIdentifier& id) const {
  protocol::CmRoute route = id.route;
  route.source = id.source;
  route.destination = id.destination;
  return route;
}

protocol::CmEvent CmClient::event_of(const CmIdentifier& id, int type, int status) const {
  protocol::CmEvent event{};
  event.magic = protocol::CmEvent::kMagic;
  event.type = static_cast<uint32_t>(type);
  event.status = status;
  event.id = id.number;
  if (has_known_family(id.source)) {
    event.route = route_of(id);
    event.flags |= protocol::kCmHasRoute;
  }
  if (id.connection == 0) return event;
  const auto info = service_.manager().info(id.connection);
  if (!info) return event;
  event.flags |= protocol::kCmHasConnection;
  event.connection = record_of(*info, id);
  return event;
}

void CmClient::emit(CmIdentifier& id, int type, int status,
                    const protocol::ConnectionParameters* parameters) {
  if (id.is_unanswered) return;
  protocol::CmEvent event = event_of(id, type, status);
  if (parameters != nullptr) {
    event.parameters = *parameters;
    event.flags |= protocol::kCmHasParameters;
  }
  if (handling_) {
    after_reply_.push_back(event);
  } else {
    send(id, event);
  }
}

uint64_t CmClient::send(CmIdentifier& id, const protocol::CmEvent& event) {
  EventChannel* channel = find_channel(id.channel);
  if (channel == nullptr || hung_up_) return 0;
  ++id.events_sent;
  const uint64_t number = channel->send(event);
  const bool too_many = waiting_events_ > kMaxWaitingEvents ||
                        (is_strangers() && usage().waiting_events > kMaxWaitingEventsOfStranger);
  if (too_many) {
    hung_up_ = true;
    host_.hang_up();
  }
  return number;
}

void CmClient::flush_events() {
  if (after_reply_.empty()) return;
  for (const protocol::CmEvent& event : std::exchange(after_reply_, {})) {
    if (CmIdentifier* id = find(event.id)) send(*id, event);
  }
}

void CmClient::links_changed() {
  const LinkDirectory& links = service_.links();
  for (const auto& [number, id] : ids_) {
    if (!id->has_device() || id->state == CmState::kDeviceRemoved) continue;
    const agent_client::Link* link = links.by_device(id->route.device_index);
    if (link == nullptr) {
      if (id->resolving != 0) service_.neighbours().cancel(std::exchange(id->resolving, 0));
      if (id->connection != 0) {
        [[maybe_unused]] const auto forgotten = service_.manager().forget(std::exchange(id->connection, 0));
      }
      id->state = CmState::kDeviceRemoved;
      id->listening = false;
      emit(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
      continue;
    }
    roce::Address own;
    std::copy_n(id->route.source_gid, own.bytes.size(), own.bytes.begin());
    const bool there = std::ranges::find(link->gids, own, &agent_client::GidEntry::gid) != link->gids.end();
    if (!there && !std::exchange(id->address_lost, true)) emit(*id, RDMA_CM_EVENT_ADDR_CHANGE);
    if (there) id->address_lost = false;
  }
}

}  // namespace verbena::agent
