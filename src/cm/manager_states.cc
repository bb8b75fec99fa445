// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cm/manager.h"
#include "cm/timeouts.h"

namespace verbena::cm {
namespace {

// For how long a refusal is repeated to whoever asks again: two retransmissions of a peer with the kernel's
// timeouts, which are 6 s apart.
constexpr Duration kLinger = std::chrono::seconds(16);

}  // namespace

// A count, so that none is used again soon, under a mask, so that none is guessed. The bytes are turned for
// the count to change the first one on the wire; the transaction ID has it as it is.
LocalId Manager::draw_id() {
  for (;;) {
    const LocalId id = byteswap(ids_drawn_++ ^ id_mask_);
    if (id != 0 && find(id) == nullptr) return id;
  }
}

uint64_t Manager::new_transaction(const Connection& connection) const {
  return static_cast<uint64_t>(config_.transaction_prefix) << 32 | byteswap(connection.info.local_id);
}

Connection& Manager::create(uint64_t context, const roce::Path& path) {
  auto* const connection = new Connection;
  connection->info.local_id = draw_id();
  connection->info.context = context;
  connection->info.path = path;
  by_local_id_.insert(*connection);
  return *connection;
}

Result<Connection*> Manager::find_in(LocalId id, StateSet states) {
  Connection* const connection = find(id);
  if (connection == nullptr || !connection->has_owner) return fail(ENOENT);
  if (!states.has(connection->info.state)) return fail(EINVAL);
  return connection;
}

// Every change of state comes through here, so the tables and counts that depend on it are right. The timer
// of the state that is left ends.
void Manager::enter(Connection& connection, State state) {
  State& current = connection.info.state;
  half_open_ += kHalfOpen.has(state);
  half_open_ -= kHalfOpen.has(current);
  if (connection.is_peer_to_peer && kWaitsForRep.has(current) && !kWaitsForRep.has(state)) {
    std::erase(peer_to_peer_, &connection);
  }
  if (!kHoldsRemoteQpn.has(state)) erase_remote_qpn(connection);
  if (state == State::kIdle && !connection.lingers) erase_remote_id(connection);
  if (state != State::kEstablished) connection.lap = LapState::kNone;
  timers_.cancel(connection);
  current = state;
}

// No longer than the packets of the connection can be on their way (IBTA volume 1, 12.9.8.4): the local ACK
// timeout is that.
void Manager::enter_time_wait(Connection& connection, TimePoint now) {
  enter(connection, State::kTimeWait);
  wait_until(connection, now + at_most(connection.info.ack_timeout), now);
}

// A time that a peer has named.
Duration Manager::at_most(uint8_t exponent) const {
  return time_of(std::min(exponent, config_.longest_response_timeout));
}

// Ends a connection that was refused, but keeps the refusal for whoever asks again.
void Manager::linger(Connection& connection, TimePoint now) {
  connection.lingers = true;
  enter(connection, State::kIdle);
  wait_until(connection, now + kLinger, now);
}

void Manager::wait_until(Connection& connection, TimePoint when, TimePoint now) {
  connection.retries_left = 0;
  timers_.set(connection, when);
  waits_.push_back(connection);
  if (++waiting_ <= config_.max_waiting) return;
  ++counters_.time_wait_cut_short;
  Connection& oldest = waits_.pop_front();
  --waiting_;
  if (oldest.has_owner && oldest.info.state == State::kTimeWait) {
    oldest.retries_left = 0;
    timers_.set(oldest, now);  // its owner hears of it from on_timer(), as of everything
    return;
  }
  oldest.lingers = false;
  enter(oldest, State::kIdle);
  release_if_done(oldest);
}

void Manager::stop_waiting(Connection& connection) {
  connection.lingers = false;
  if (!connection.wait_hook.is_linked()) return;
  connection.wait_hook.unlink();
  --waiting_;
}

void Manager::insert_remote_id(Connection& connection) {
  by_remote_id_.insert(connection);
  connection.in_remote_ids = true;
}

void Manager::erase_remote_id(Connection& connection) {
  if (connection.in_remote_ids) by_remote_id_.erase(connection);
  if (connection.in_sidr_requests) sidr_requests_.erase(connection);
  connection.in_remote_ids = connection.in_sidr_requests = false;
}

void Manager::insert_remote_qpn(Connection& connection) {
  if (connection.info.remote_qpn == 0) return;  // no QP
  by_remote_qpn_.insert(connection);
  connection.in_remote_qpns = true;
}

void Manager::erase_remote_qpn(Connection& connection) {
  if (connection.in_remote_qpns) by_remote_qpn_.erase(connection);
  connection.in_remote_qpns = false;
}

// Whether there is an owner to hear of what happened. If not, and nothing is left to do, the connection is
// gone.
bool Manager::tell(Connection& connection) {
  if (connection.has_owner) return true;
  release_if_done(connection);
  return false;
}

void Manager::release_if_done(Connection& connection) {
  if (!connection.has_owner && connection.info.state == State::kIdle && !connection.lingers) {
    release(connection);
  }
}

void Manager::release(Connection& connection) {
  stop_waiting(connection);
  enter(connection, State::kIdle);
  by_local_id_.erase(connection);
  delete &connection;
}

}  // namespace verbena::cm
