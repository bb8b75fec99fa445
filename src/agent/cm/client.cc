// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include <rdma/rdma_cma.h>

#include "agent/cm/identifier.h"
#include "control/model/message_socket.h"

namespace verbena::agent {

struct CmClient::Request {
  protocol::MessageType type;
  size_t bytes;
  void (*carry_out)(CmClient& client, const protocol::MessageHeader& header, ConstBytes message,
                    ClientFile descriptor);
};

template <class Message, auto Role, auto Method, protocol::TraceCall Call>
void CmClient::carry_out(CmClient& client, const protocol::MessageHeader& header, ConstBytes message,
                         [[maybe_unused]] ClientFile descriptor) {
  Message request;
  std::memcpy(&request, message.data(), sizeof request);  // the session has checked the length
  auto& role = client.*Role;
  if constexpr (std::is_invocable_v<decltype(Method), decltype(role), const Message&, ClientFile>) {
    client.answer(header, (role.*Method)(request, std::move(descriptor)));
  } else if constexpr (Call == protocol::TraceCall::kNone) {
    client.answer(header, (role.*Method)(request));
  } else {
    client.trace_call(Call, request);
    const auto outcome = (role.*Method)(request);
    if (!outcome) client.trace_refusal(Call, request.id, outcome.error().code);
    client.answer(header, outcome);
  }
}

// Records a call. Skips accept() on the active side: the library makes that call, not the program, and its
// RTU is recorded.
template <class Message>
void CmClient::trace_call(protocol::TraceCall call, const Message& request) {
  const CmIdentifier* const id = identifiers_.find(request.id);
  if (id == nullptr || (call == protocol::TraceCall::kAccept && id->is_active)) return;
  const protocol::CmAddress* to = nullptr;
  if constexpr (requires { request.destination; }) to = &request.destination;
  if constexpr (requires { request.group; }) to = &request.group;
  const auto info = service_.manager().info(id->connection);
  uint32_t qpn = info ? info->local_qpn : 0;
  if constexpr (requires { request.parameters; }) qpn = request.parameters.qpn;
  trace_->called(*id, call, qpn, to);
}

void CmClient::trace_refusal(protocol::TraceCall call, uint32_t id, int error) {
  if (const CmIdentifier* const refused = identifiers_.find(id)) trace_->refused(*refused, call, error);
}

// The role for each request, in the order of the message types.
const CmClient::Request CmClient::kRequests[] = {
#define VERBENA_REQUEST(type, message, role, Role, method, call)                                      \
  {                                                                                                   \
    protocol::MessageType::type, sizeof(protocol::message),                                           \
        &CmClient::carry_out<protocol::message, &CmClient::role##_requests_, &Role##Requests::method, \
                             protocol::TraceCall::call>                                               \
  }
    VERBENA_REQUEST(kCmOpenChannel, CmChannelRequest, identifier, Identifier, open_channel, kNone),
    VERBENA_REQUEST(kCmCloseChannel, CmChannelRequest, identifier, Identifier, close_channel, kNone),
    VERBENA_REQUEST(kCmCreateId, CmCreateRequest, identifier, Identifier, create, kNone),
    VERBENA_REQUEST(kCmDestroyId, CmIdRequest, identifier, Identifier, destroy, kDestroy),
    VERBENA_REQUEST(kCmBind, CmBindRequest, address, Address, bind, kBind),
    VERBENA_REQUEST(kCmResolveAddress, CmResolveRequest, address, Address, resolve_address, kResolveAddress),
    VERBENA_REQUEST(kCmResolveRoute, CmIdRequest, address, Address, resolve_route, kResolveRoute),
    VERBENA_REQUEST(kCmListen, CmListenRequest, address, Address, listen, kListen),
    VERBENA_REQUEST(kCmConnect, CmConnectRequest, connection, Connection, connect, kConnect),
    VERBENA_REQUEST(kCmAccept, CmConnectRequest, connection, Connection, accept, kAccept),
    VERBENA_REQUEST(kCmReject, CmRejectRequest, connection, Connection, reject, kReject),
    VERBENA_REQUEST(kCmEstablish, CmIdRequest, connection, Connection, establish, kNotify),
    VERBENA_REQUEST(kCmDisconnect, CmIdRequest, connection, Connection, disconnect, kDisconnect),
    VERBENA_REQUEST(kCmSetOption, CmOptionRequest, identifier, Identifier, set_option, kNone),
    VERBENA_REQUEST(kCmJoin, CmJoinRequest, multicast, Multicast, join, kJoin),
    VERBENA_REQUEST(kCmLeave, CmLeaveRequest, multicast, Multicast, leave, kLeave),
    VERBENA_REQUEST(kCmMigrateId, CmMigrateRequest, identifier, Identifier, migrate, kNone),
    VERBENA_REQUEST(kCmRestoreId, CmRestoreRequest, restore, Restore, restore, kNone),
#undef VERBENA_REQUEST
};

CmClient::CmClient(CmService& service, Host& host)
    : service_(service),
      host_(host),
      user_(host.user()),
      trace_(service.make_trace(host)),
      limits_(service, user_),
      channels_(service.loop(), host, limits_, trace_),
      identifiers_(*this, service, limits_, channels_),
      parts_{service, host, limits_, channels_, identifiers_} {
  service_.join(*this);
}

CmClient::~CmClient() {
  service_.leave(*this);
  service_.settle();  // at the end of the loop's round: after the identifiers are destroyed
}

void CmClient::go() {
  service_.tally() -= tally_;
  service_.usage_of(user_).tally -= tally_;
  has_gone = true;
  trace_->ended_in_order = identifiers_.all().empty();
  service_.leave(*this);
  channels_.hang_up();
}

size_t CmClient::clear(size_t most) {
  const size_t channels = channels_.clear(most);
  service_.settle();
  return channels + identifiers_.clear(most - channels);
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

void CmClient::count(size_t CmTally::*what, bool& is_counted, bool is_to_count) {
  if (std::exchange(is_counted, is_to_count) == is_to_count) return;
  CmTally change;
  change.*what = 1;
  const auto apply = [&](CmTally& tally) { is_to_count ? tally += change : tally -= change; };
  apply(tally_);
  if (has_gone) return;
  apply(service_.tally());
  apply(service_.usage_of(user_).tally);
}

void CmClient::recount(CmIdentifier& id, bool is_there) {
  count(&CmTally::identifiers, id.is_counted, is_there);
  count(&CmTally::listening, id.is_counted_listening, is_there && id.listening);
  count(&CmTally::resolving, id.is_counted_resolving, is_there && id.resolving != 0);
}

// A client's identifier, or its channel, may have 65,536 waiting events.
CmClient::Preparation CmClient::preparation_of(const protocol::MessageHeader& header, ConstBytes message) {
  switch (static_cast<protocol::MessageType>(header.type)) {
    case protocol::MessageType::kCmCloseChannel:
      return close_little_by_little(protocol::read_as<protocol::CmChannelRequest>(message).channel);
    case protocol::MessageType::kCmDestroyId:
      return drop_events_of(protocol::read_as<protocol::CmIdRequest>(message).id);
    case protocol::MessageType::kCmMigrateId: {
      const auto request = protocol::read_as<protocol::CmMigrateRequest>(message);
      return move_events_of(request.id, request.channel);
    }
    default:
      return {};
  }
}

// Closes an event channel in steps, then replies. As in the kernel, its identifiers are destroyed with it.
// There may be 131,072 of them.
CmClient::Preparation CmClient::close_little_by_little(uint32_t number) {
  return [this, number, next = uint32_t{0}]() mutable {
    EventChannel* const channel = channels_.find(number);
    if (channel == nullptr) return false;
    if (channel->identifiers > 0) next = identifiers_.erase_some_of(number, next, GoneClients::kAtOnce);
    return channel->identifiers > 0 || channel->drop_some(GoneClients::kAtOnce) == GoneClients::kAtOnce;
  };
}

CmClient::Preparation CmClient::drop_events_of(uint32_t number) {
  return [this, number] {
    CmIdentifier* const id = identifiers_.find(number);
    EventChannel* const channel = id != nullptr ? channels_.find(id->channel) : nullptr;
    if (channel == nullptr) return false;
    const size_t dropped = channel->drop_events(number, GoneClients::kAtOnce);
    id->events_sent -= static_cast<uint32_t>(dropped);
    return dropped == GoneClients::kAtOnce;
  };
}

// Events that come meanwhile wait behind the rest in the old channel, and so keep their order.
CmClient::Preparation CmClient::move_events_of(uint32_t number, uint32_t to) {
  return [this, number, to] {
    CmIdentifier* const id = identifiers_.find(number);
    EventChannel* const from = id != nullptr ? channels_.find(id->channel) : nullptr;
    EventChannel* const other = channels_.find(to);
    if (from == nullptr || other == nullptr) return false;
    return from->move_events(number, *other, GoneClients::kAtOnce) == GoneClients::kAtOnce;
  };
}

void CmClient::go_on() {
  if (!unfinished_->prepare()) {
    const Unfinished finished = std::move(*unfinished_);
    unfinished_.reset();
    find_request(finished.header.type)->carry_out(*this, finished.header, finished.message, {});
  }
  service_.settle();
}

void CmClient::handle(const protocol::MessageHeader& header, ConstBytes message, ClientFile descriptor) {
  if (Preparation prepare = preparation_of(header, message); prepare && prepare()) {
    unfinished_ = {std::move(prepare), header, {message.begin(), message.end()}};
  } else {
    find_request(header.type)->carry_out(*this, header, message, std::move(descriptor));
  }
  service_.settle();
}

template <class Result>
void CmClient::answer(const protocol::MessageHeader& header, const control::AdminResult<Result>& outcome) {
  if (!outcome) return host_.send_error(header, outcome.error().code, outcome.error().text);
  const protocol::MessageHeader head = protocol::reply_header(header);
  if constexpr (std::is_same_v<Result, void>) {
    reply(protocol::PlainReply{head});
  } else if constexpr (std::is_same_v<Result, protocol::CmRoute>) {
    reply(protocol::CmAddressReply{head, *outcome});
  } else if constexpr (std::is_same_v<Result, Destroyed>) {
    reply(protocol::CmDestroyReply{head, outcome->events, 0});
  } else if constexpr (std::is_same_v<Result, Done>) {
    reply(protocol::PlainReply{head});
    if (outcome->event) send(*outcome->event);
  } else {
    static_assert(std::is_same_v<Result, DoneWithRoute>);
    reply(protocol::CmAddressReply{head, outcome->route});
    if (outcome->event) send(*outcome->event);
  }
}

template <class Reply>
void CmClient::reply(const Reply& message) {
  host_.send_reply(protocol::bytes_of(message));
}

void CmClient::send(const protocol::CmEvent& event) {
  if (CmIdentifier* id = identifiers_.find(event.id)) channels_.send(*id, event);
}

bool CmClient::has_room(CmIdentifier& listener) {
  if (!identifiers_.has_room()) return false;
  CmIdentifier::Listening& state = *listener.listening_state;
  if (state.unseen.size() < state.backlog) return true;
  const EventChannel* channel = channels_.find(listener.channel);
  if (channel == nullptr) return false;
  const uint64_t taken = channel->taken();
  while (!state.unseen.empty() && state.unseen.front() <= taken) state.unseen.pop_front();
  return state.unseen.size() < state.backlog;
}

void CmClient::add_request(std::unique_ptr<CmIdentifier> id, const protocol::ConnectionParameters& parameters,
                           cm::MessageType request) {
  CmIdentifier& listener = *identifiers_.find(id->number);
  CmIdentifier& added = identifiers_.add(std::move(id), listener);
  if (const auto info = service_.manager().info(added.connection)) trace_->received(added, *info, {request});
  protocol::CmEvent event =
      event_of(added, service_.manager(), RDMA_CM_EVENT_CONNECT_REQUEST, 0, &parameters);
  event.listener = listener.number;
  listener.listening_state->unseen.push_back(channels_.send(listener, event, added));
}

void CmClient::emit(CmIdentifier& id, int type, int status,
                    const protocol::ConnectionParameters* parameters) {
  if (id.is_unanswered) return;
  channels_.send(id, event_of(id, service_.manager(), type, status, parameters));
}

// A removed address causes no event: the kernel's rdma_cm ignores it, too, and connections go on without it.
// ADDR_CHANGE is for a bond of which another port takes over (cma_netdev_change()).
void CmClient::links_changed(std::span<const uint32_t> failed_over) {
  const LinkDirectory& links = service_.links();
  for (const auto& [number, id] : identifiers_.all()) {
    if (!id->has_device() || id->state == CmState::kDeviceRemoved) continue;
    const control::Link* link = links.by_device(id->route.device_index);
    if (link == nullptr) {
      remove_device(*id);
    } else if (std::ranges::find(failed_over, link->device_index) != failed_over.end()) {
      emit(*id, RDMA_CM_EVENT_ADDR_CHANGE);
    }
  }
}

void CmClient::remove_device(CmIdentifier& id) {
  if (id.resolving != 0) service_.neighbours().cancel(std::exchange(id.resolving, 0));
  service_.release_connection(id);
  if (id.connection != 0) {
    [[maybe_unused]] const auto forgotten = service_.manager().forget(std::exchange(id.connection, 0));
  }
  id.state = CmState::kDeviceRemoved;
  id.listening = false;
  recount(id);
  emit(id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

}  // namespace verbena::agent
