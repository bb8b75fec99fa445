// SPDX-License-Identifier: Apache-2.0
#include "management/cm/manager.h"

#include <cerrno>

namespace verbena::cm {

Manager::Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random)
    : config_(config),
      table_(config_, counters_, random),
      known_peers_(random.next()),
      sender_(config_, sink, table_, known_peers_, counters_),
      owner_(config_, handler, table_, counters_),
      parts_{config_, counters_, table_, known_peers_, sender_, owner_} {}

void Manager::set_observer(Observer& observer) {
  observer_ = &observer;
  sender_.set_observer(observer_);
}

// For a REQ, finds an existing connection (then it is a duplicate). A REJ may name only its sender's ID.
template <class Message>
const Connection* Manager::named_by(const Message& message, const roce::Address& sender) {
  const Connection* connection = nullptr;
  if constexpr (requires { message.request_id; }) {
    connection = Message::kType == MessageType::kSidrRep ? table_.find(message.request_id) : nullptr;
  } else {
    uint32_t own_id = 0;
    if constexpr (requires { message.remote_id; }) own_id = message.remote_id;
    connection = own_id != 0 ? table_.find(own_id) : table_.find_by_remote_id({sender, message.local_id});
  }
  const bool is_its_peer = connection != nullptr && connection->info.path.destination == sender;
  return is_its_peer ? connection : nullptr;
}

template <class Message, auto Role>
void Manager::receive(Manager& manager, ConstBytes mad, const Incoming& incoming) {
  const auto message = decode<Message>(mad);
  if (!message) {
    ++manager.counters_.of(DropReason::kMalformed);
    return;
  }
  if (const Connection* const connection = manager.named_by(*message, incoming.peer())) {
    if (is_from_other_port(*connection, incoming)) {
      ++manager.counters_.of(DropReason::kWrongPeer);
      return;
    }
    if (manager.observer_ != nullptr && connection->has_owner) {
      const uint16_t repetitions = Message::kType == MessageType::kReq ? 1 : 0;
      manager.observer_->on_received(connection->info, {Message::kType, reason_in(*message), repetitions});
    }
  }
  (manager.*Role).handle(*message, incoming);
}

// The role that handles each message, in the order of MessageType.
const Manager::Receiver Manager::kReceivers[kMessageTypes] = {
    &Manager::receive<Req, &Manager::passive_side_>,
    &Manager::receive<Mra, &Manager::delay_>,
    &Manager::receive<Rej, &Manager::rejection_>,
    &Manager::receive<Rep, &Manager::active_side_>,
    &Manager::receive<Rtu, &Manager::passive_side_>,
    &Manager::receive<Dreq, &Manager::ending_>,
    &Manager::receive<Drep, &Manager::ending_>,
    &Manager::receive<SidrReq, &Manager::service_resolution_>,
    &Manager::receive<SidrRep, &Manager::service_resolution_>,
    &Manager::receive<Lap, &Manager::migration_>,
    &Manager::receive<Apr, &Manager::migration_>,
};

Disposal Manager::on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now) {
  const auto header = decode_header(mad);
  if (!header) {
    ++counters_.of(header.error());
    return Disposal::kDone;
  }
  const auto type = static_cast<size_t>(header->type);
  if (arrival.waited == Duration::zero()) ++counters_.received[type];
  if (!arrival.from_roce_port && known_peers_.has_roce_port(arrival.path.source, now)) {
    ++counters_.of(DropReason::kWrongPeer);
    return Disposal::kDone;
  }
  Disposal disposal = Disposal::kDone;
  kReceivers[type](*this, mad, Incoming{header->transaction, arrival, now, disposal});
  return disposal;
}

void Manager::on_timer(TimePoint now, size_t most) {
  for (size_t i = 0; i < most && table_.deadline() <= now; ++i) expire(table_.next_due(), now);
}

void Manager::expire(Connection& connection, TimePoint now) {
  if (connection.retries_left > 0) {
    sender_.repeat(connection, now);
  } else if (connection.wait_hook.is_linked() || connection.info.state == State::kTimeWait) {
    ending_.end_wait(connection);
  } else {
    give_up(connection, now);
  }
}

// Gives up after the last retransmission.
void Manager::give_up(Connection& connection, TimePoint now) {
  if (kAwaitsOwner.has(connection.info.state)) return forget_request(connection);
  ++counters_.timed_out[static_cast<size_t>(connection.last.type)];
  switch (connection.info.state) {
    case State::kDreqSent:
      return ending_.give_up(connection, now);
    case State::kEstablished:
      return migration_.give_up(connection);
    case State::kSidrReqSent:
      return service_resolution_.give_up(connection);
    default:
      return rejection_.give_up(connection, now);
  }
}

// Tells the owner only: the peer no longer repeats its request and needs no answer.
void Manager::forget_request(Connection& connection) {
  const bool resolves = kResolves.has(connection.info.state);
  table_.enter(connection, State::kIdle);
  owner_.tell(connection, &Handler::on_unreachable, resolves ? MessageType::kSidrReq : MessageType::kReq);
}

Result<LocalId> Manager::connect(const ConnectRequest& request, uint64_t context, TimePoint now) {
  return active_side_.connect(request, context, now);
}

Result<void> Manager::reply(LocalId id, const ConnectReply& reply, TimePoint now) {
  return passive_side_.reply(id, reply, now);
}

Result<void> Manager::ready(LocalId id, ConstBytes private_data, TimePoint) {
  return active_side_.ready(id, private_data);
}

Result<void> Manager::establish(LocalId id, TimePoint) {
  return passive_side_.establish(id);
}

Result<void> Manager::reject(LocalId id, const RejectParameters& parameters, TimePoint now) {
  return rejection_.reject(id, parameters, now);
}

Result<void> Manager::delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                            TimePoint now) {
  return delay_.delay(id, service_timeout, when, private_data, now);
}

Result<void> Manager::disconnect(LocalId id, ConstBytes private_data, TimePoint now) {
  return ending_.disconnect(id, private_data, now);
}

Result<void> Manager::confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now) {
  return ending_.confirm_disconnect(id, private_data, now);
}

Result<LocalId> Manager::sidr_request(const SidrRequest& request, uint64_t context, TimePoint now) {
  return service_resolution_.request(request, context, now);
}

Result<void> Manager::sidr_reply(LocalId id, const SidrReply& reply, TimePoint now) {
  return service_resolution_.reply(id, reply, now);
}

Result<void> Manager::load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                          TimePoint now) {
  return migration_.load_alternate_path(id, path, private_data, now);
}

Result<void> Manager::answer_alternate_path(LocalId id, AprStatus status, ConstBytes info,
                                            ConstBytes private_data, TimePoint) {
  return migration_.answer_alternate_path(id, status, info, private_data);
}

Result<void> Manager::destroy(LocalId id, TimePoint now) {
  const auto connection = table_.find_owned(id);
  if (!connection) return tl::unexpected(connection.error());
  abandon(**connection, now);
  table_.disown(**connection);
  table_.release_if_done(**connection);
  return {};
}

// Chooses by state the role that ends a destroyed connection.
void Manager::abandon(Connection& connection, TimePoint now) {
  if (kRejectable.has(connection.info.state)) return rejection_.abandon(connection, now);
  if (kResolves.has(connection.info.state)) return service_resolution_.abandon(connection, now);
  ending_.abandon(connection, now);
}

Result<void> Manager::end(LocalId id, TimePoint now) {
  const auto connection = table_.find_owned(id);
  if (!connection) return tl::unexpected(connection.error());
  // An XRC target's too, to whose peer abandon() would say nothing.
  if ((*connection)->info.state == State::kEstablished) return ending_.disconnect(id, {}, now);
  abandon(**connection, now);
  return {};
}

Result<void> Manager::forget(LocalId id) {
  const auto connection = table_.find_owned(id);
  if (!connection) return tl::unexpected(connection.error());
  table_.release(**connection);
  return {};
}

Result<void> Manager::restore(const ConnectionInfo& agreed, uint64_t context, TimePoint) {
  if (agreed.local_id == 0 || agreed.remote_id == 0) return fail(EINVAL);
  if (table_.find(agreed.local_id) != nullptr) return fail(EEXIST);
  Connection& connection = table_.take_up(agreed, context);
  ConnectionInfo& info = connection.info;
  info.ack_timeout &= 31;
  connection.timeout = config_.answer_time(info.peer_response_timeout) + time_of(info.ack_timeout);
  sender_.begin_transaction(connection);
  return {};
}

Result<ConnectionInfo> Manager::info(LocalId id) const {
  const Connection* const connection = table_.find(id);
  if (connection == nullptr || !connection->has_owner) return fail(ENOENT);
  return connection->info;
}

std::optional<Manager::QpHolder> Manager::next_qp_holder(uint32_t qpn, LocalId id) const {
  const Connection* const found = table_.next_by_local_qpn(qpn, id);
  if (found == nullptr) return std::nullopt;
  return QpHolder{found->info.local_qpn, found->info.local_id, found->has_owner, found->info.context};
}

}  // namespace verbena::cm
