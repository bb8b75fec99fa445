// SPDX-License-Identifier: Apache-2.0
#include "management/cm/manager.h"

namespace verbena::cm {

Manager::Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random)
    : config_(config),
      handler_(handler),
      table_(config_, sink, counters_, random),
      known_peers_(random.next()),
      sender_(config_, sink, table_, known_peers_, counters_) {}

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

template <class Message>
void Manager::receive(ConstBytes mad, const Incoming& incoming) {
  const auto message = decode<Message>(mad);
  if (!message) return drop(DropReason::kMalformed);
  if (const Connection* const connection = named_by(*message, incoming.peer())) {
    if (is_from_other_port(*connection, incoming)) return drop(DropReason::kWrongPeer);
    if (observer_ != nullptr && connection->has_owner) {
      const uint16_t repetitions = Message::kType == MessageType::kReq ? 1 : 0;
      observer_->on_received(connection->info, {Message::kType, reason_in(*message), repetitions});
    }
  }
  handle(*message, incoming);
}

// In the order of MessageType.
const Manager::Receiver Manager::kReceivers[kMessageTypes] = {
    &Manager::receive<Req>,     &Manager::receive<Mra>,  &Manager::receive<Rej>,  &Manager::receive<Rep>,
    &Manager::receive<Rtu>,     &Manager::receive<Dreq>, &Manager::receive<Drep>, &Manager::receive<SidrReq>,
    &Manager::receive<SidrRep>, &Manager::receive<Lap>,  &Manager::receive<Apr>,
};

Disposal Manager::on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now) {
  const auto header = decode_header(mad);
  if (!header) {
    drop(header.error());
    return Disposal::kDone;
  }
  const auto type = static_cast<size_t>(header->type);
  if (arrival.waited == Duration::zero()) ++counters_.received[type];
  if (!arrival.from_roce_port && known_peers_.has_roce_port(arrival.path.source, now)) {
    drop(DropReason::kWrongPeer);
    return Disposal::kDone;
  }
  Disposal disposal = Disposal::kDone;
  (this->*kReceivers[type])(mad, Incoming{header->transaction, arrival, now, disposal});
  return disposal;
}

void Manager::on_timer(uint32_t account, TimePoint now) {
  if (table_.deadline(account) <= now) expire(table_.next_due(account), now);
}

void Manager::on_timer(TimePoint now) {
  while (deadline() <= now) on_timer(table_.next_account(), now);
}

void Manager::expire(Connection& connection, TimePoint now) {
  if (connection.retries_left > 0) {
    sender_.repeat(connection, now);
  } else if (connection.wait_hook.is_linked() || connection.info.state == State::kTimeWait) {
    end_wait(connection);
  } else {
    give_up(connection, now);
  }
}

void Manager::end_wait(Connection& connection) {
  const bool was_time_wait = connection.info.state == State::kTimeWait;
  table_.stop_waiting(connection);
  if (was_time_wait) {
    tell(connection, &Handler::on_time_wait_exit);
  } else {
    table_.release_if_done(connection);
  }
}

// Gives up after the last retransmission, or when the owner has not answered a request that the peer no
// longer repeats. Then only the owner is told: the peer needs no answer.
void Manager::give_up(Connection& connection, TimePoint now) {
  const State state = connection.info.state;
  const bool awaits_owner = kAwaitsOwner.has(state);
  if (!awaits_owner) ++counters_.timed_out[static_cast<size_t>(connection.last.type)];
  if (awaits_owner || state == State::kSidrReqSent) {
    table_.enter(connection, State::kIdle);
    const auto unanswered = kResolves.has(state) ? MessageType::kSidrReq : MessageType::kReq;
    return tell(connection, &Handler::on_unreachable, unanswered);
  }
  if (state != State::kDreqSent) return give_up_setup(connection, now);
  table_.enter_time_wait(connection, now);
  tell(connection, &Handler::on_disconnected, nullptr);
}

Result<void> Manager::destroy(LocalId id, TimePoint now) {
  const auto connection = table_.find_owned(id);
  if (!connection) return tl::unexpected(connection.error());
  abandon(**connection, now);
  table_.disown(**connection);
  return {};
}

// Ends a destroyed connection.
void Manager::abandon(Connection& connection, TimePoint now) {
  if (kRejectable.has(connection.info.state)) return abandon_setup(connection, now);
  if (kResolves.has(connection.info.state)) return abandon_resolution(connection, now);
  abandon_established(connection, now);
}

Result<void> Manager::end(LocalId id, TimePoint now) {
  const auto connection = table_.find_owned(id);
  if (!connection) return tl::unexpected(connection.error());
  // An XRC target's too, to whose peer abandon() would say nothing.
  if ((*connection)->info.state == State::kEstablished) return disconnect(id, {}, now);
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
  connection.timeout =
      config_.answer_time(info.peer_response_timeout) + config_.response_time(info.ack_timeout);
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

bool Manager::may_restore(uint32_t qpn, const Incoming& incoming) {
  const Handler::Return verdict = handler_.may_return(qpn, incoming.arrival);
  if (verdict == Handler::Return::kWait) incoming.disposal = Disposal::kKeep;
  return verdict != Handler::Return::kNever;
}

Connection* Manager::of_peer(LocalId id, uint32_t remote_id, const Incoming& incoming) {
  Connection* const connection = table_.find(id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
    return nullptr;
  }
  if (connection->info.path.destination != incoming.peer() || connection->info.remote_id != remote_id) {
    drop(DropReason::kWrongPeer);
    return nullptr;
  }
  known_peers_.has_answered(incoming.peer(), incoming.now);
  if (incoming.arrival.from_roce_port) connection->info.peer_has_roce_port = true;
  return connection;
}

void Manager::note_port_of_answer(Connection& connection, const Incoming& incoming) {
  if (!incoming.arrival.from_roce_port) return;
  connection.info.peer_has_roce_port = true;
  known_peers_.has_answered_from_roce_port(incoming.peer(), incoming.now);
}

bool Manager::is_stale(uint32_t remote_qpn, bool is_active, const Incoming& incoming) {
  Connection* const old =
      table_.find_by_remote_qpn(incoming.arrival.path.destination, incoming.peer(), remote_qpn, is_active);
  if (old == nullptr) return false;
  if (is_from_other_port(*old, incoming)) {
    drop(DropReason::kWrongPeer);
    return true;
  }
  ++counters_.stale_connections;
  if (old->info.state == State::kEstablished) sender_.send_dreq(*old, {}, incoming.now);
  return true;
}

}  // namespace verbena::cm
