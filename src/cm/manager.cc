// SPDX-License-Identifier: Apache-2.0
#include "cm/manager.h"

namespace verbena::cm {
namespace {

DropReason reason_of(DecodeError error) {
  return error == DecodeError::kSize ? DropReason::kNotWhole : DropReason::kNotOurs;
}

}  // namespace

Handler::Return Handler::may_return(uint32_t, const Arrival&) {
  return Return::kNever;
}
void Handler::on_alternate_path(LocalId, uint64_t, const Lap&) {}
void Handler::on_alternate_path_answer(LocalId, uint64_t, const Apr&) {}

Manager::Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random)
    : config_(config),
      sink_(sink),
      handler_(handler),
      random_(random),
      id_mask_(config.id_mask.value_or(static_cast<uint32_t>(random_.next()))),
      by_local_id_(random_.next()),
      by_remote_id_(random_.next()),
      by_remote_qpn_(random_.next()),
      sidr_requests_(random_.next()) {}

Manager::~Manager() {
  by_local_id_.drain([](Connection& connection) { delete &connection; });
}

// In the order of MessageType.
const Manager::Receiver Manager::kReceivers[kMessageTypes] = {
    &Manager::receive<Req>,     &Manager::receive<Mra>,  &Manager::receive<Rej>,  &Manager::receive<Rep>,
    &Manager::receive<Rtu>,     &Manager::receive<Dreq>, &Manager::receive<Drep>, &Manager::receive<SidrReq>,
    &Manager::receive<SidrRep>, &Manager::receive<Lap>,  &Manager::receive<Apr>};

Disposal Manager::on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now) {
  const auto header = decode_header(mad);
  if (!header) {
    drop(reason_of(header.error()));
    return Disposal::kDone;
  }
  const auto type = static_cast<size_t>(header->type);
  ++counters_.received[type];
  Disposal disposal = Disposal::kDone;
  (this->*kReceivers[type])(mad, Receipt{header->transaction, arrival, now, disposal});
  return disposal;
}

template <class Message>
void Manager::receive(ConstBytes mad, const Receipt& receipt) {
  const auto message = decode<Message>(mad);
  if (!message) {
    drop(DropReason::kMalformed);
    return;
  }
  handle(*message, receipt);
}

// Whether a connection that is not here may yet be restored, so that nobody is told that there is none.
bool Manager::may_return(uint32_t qpn, const Receipt& receipt) {
  const Handler::Return verdict = handler_.may_return(qpn, receipt.arrival);
  if (verdict == Handler::Return::kWait) receipt.disposal = Disposal::kKeep;
  return verdict != Handler::Return::kNever;
}

bool Manager::drop(DropReason reason) {
  ++counters_.of(reason);
  return false;
}

// The connection of a message that names both IDs, and comes from where it should.
Connection* Manager::of_peer(LocalId id, uint32_t remote_id, const Arrival& arrival) {
  Connection* const connection = find(id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
    return nullptr;
  }
  if (connection->info.path.destination != arrival.path.source || connection->info.remote_id != remote_id) {
    drop(DropReason::kWrongPeer);
    return nullptr;
  }
  return connection;
}

Result<ConnectionInfo> Manager::info(LocalId id) const {
  const Connection* const connection = by_local_id_.find(id);
  if (connection == nullptr || !connection->has_owner) return fail(ENOENT);
  return connection->info;
}

void Manager::on_timer(TimePoint now) {
  while (timers_.next() <= now) expire(timers_.front(), now);
}

void Manager::expire(Connection& connection, TimePoint now) {
  if (connection.retries_left > 0) {
    --connection.retries_left;
    ++counters_.retransmitted[static_cast<size_t>(connection.last.type)];
    send_again(connection);
    timers_.set(connection, now + connection.repeat_after);
  } else if (connection.wait_hook.is_linked() || connection.info.state == State::kTimeWait) {
    end_wait(connection);
  } else {
    give_up(connection, now);
  }
}

// Nobody has answered.
void Manager::give_up(Connection& connection, TimePoint now) {
  const MessageType unanswered = connection.last.type;
  ++counters_.timed_out[static_cast<size_t>(unanswered)];
  switch (connection.info.state) {
    case State::kDreqSent:
      enter_time_wait(connection, now);
      if (tell(connection)) {
        handler_.on_disconnected(connection.info.local_id, connection.info.context, nullptr);
      }
      return;
    case State::kEstablished:  // a LAP: the connection stands as it was
      timers_.cancel(connection);
      connection.lap = LapState::kNone;
      connection.last.kept = false;
      break;
    case State::kSidrReqSent:
      enter(connection, State::kIdle);
      break;
    default:
      send_timeout_rej(connection);
      enter(connection, State::kIdle);
      break;
  }
  if (tell(connection)) {
    handler_.on_unreachable(connection.info.local_id, connection.info.context, unanswered);
  }
}

// TIMEWAIT is over, or the time in which a refused peer might ask again.
void Manager::end_wait(Connection& connection) {
  const bool was_time_wait = connection.info.state == State::kTimeWait;
  stop_waiting(connection);
  enter(connection, State::kIdle);
  if (tell(connection) && was_time_wait) {
    handler_.on_time_wait_exit(connection.info.local_id, connection.info.context);
  }
}

}  // namespace verbena::cm
