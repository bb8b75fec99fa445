// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client.h"

#include <rdma/rdma_cma.h>

namespace verbena::agent {

CmClient::CmClient(CmService& service, Host& host)
    : service_(service),
      host_(host),
      user_(host.user()),
      trace_(service.make_trace(host)),
      limits_(service, user_),
      channels_(service.loop(), host, limits_, trace_),
      identifiers_(*this, service, limits_, channels_),
      requests_(service, host, limits_, channels_, identifiers_) {
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

void CmClient::count(size_t CmTally::*what, bool& is_counted, bool is_to_count) {
  if (std::exchange(is_counted, is_to_count) == is_to_count) return;
  const auto apply = [&](CmTally& tally) { is_to_count ? ++(tally.*what) : --(tally.*what); };
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
    const Unfinished prepared = std::move(*unfinished_);
    unfinished_.reset();
    prepared.finish();
  }
  service_.settle();
}

void CmClient::send(const protocol::CmEvent& event) {
  if (CmIdentifier* id = identifiers_.find(event.id)) channels_.send(*id, event);
}

bool CmClient::has_room(CmIdentifier& listener) {
  if (!identifiers_.has_room() || !channels_.has_room_for_event()) return false;
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
  if (const auto info = service_.manager().info(added.connection))
    trace_->passed(trace::Kind::kCmReceived, added, *info, {request});
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
  if (const auto ports = service_.port_space(id.port_space)) (*ports)->stop_listening(id);
  recount(id);
  emit(id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

}  // namespace verbena::agent
