// SPDX-License-Identifier: Apache-2.0
#include "management/cm/connection_table.h"

namespace verbena::cm {
namespace {

// How long a refusal is repeated to a peer that retries: two retransmissions with the kernel's timeouts, 6 s
// apart.
constexpr Duration kLinger = std::chrono::seconds(16);

}  // namespace

ConnectionTable::ConnectionTable(const ManagerConfig& config, Sink& sink, Counters& counters, Random random)
    : config_(config),
      sink_(sink),
      counters_(counters),
      half_open_({.all = config.max_half_open,
                  .reserve = config.max_half_open / 8,
                  .kept_for_strangers = config.max_half_open / 8},
                 config.own_account),
      unanswered_(Quota::Size::of(config.max_unanswered), config.own_account),
      ids_(random.next(), config.id_mask),
      by_local_id_(0, KeyedHash(random.next())),
      by_remote_id_(0, KeyedHash(random.next())),
      by_remote_qpn_(0, KeyedHash(random.next())),
      sidr_requests_(0, KeyedHash(random.next())) {}

LocalId ConnectionTable::draw_id() {
  for (;;) {
    const LocalId id = ids_.next();
    if (id != 0 && find(id) == nullptr) return id;
  }
}

Connection& ConnectionTable::insert(const ConnectionInfo& info) {
  Connection& connection = *by_local_id_.emplace(info.local_id, std::make_unique<Connection>()).first->second;
  connection.info = info;
  ++owned_with(connection);
  return connection;
}

Connection& ConnectionTable::create(uint64_t context, const roce::Path& path, uint32_t account) {
  ConnectionInfo info;
  info.local_id = draw_id();
  info.context = context;
  info.path = path;
  info.account = account;
  return insert(info);
}

Connection& ConnectionTable::take_up(const ConnectionInfo& agreed, uint64_t context) {
  ConnectionInfo info = agreed;
  info.state = State::kIdle;
  info.context = context;
  Connection& connection = insert(info);
  enter(connection, State::kEstablished);
  insert_remote_numbers(connection);
  return connection;
}

void ConnectionTable::release(Connection& connection) {
  unlink_wait(connection);
  enter(connection, State::kIdle);
  if (connection.has_owner) --owned_with(connection);
  by_local_id_.erase(LocalId{connection.info.local_id});
}

void ConnectionTable::release_if_done(Connection& connection) {
  if (!connection.has_owner && connection.info.state == State::kIdle && !connection.lingers) {
    release(connection);
  }
}

// REQUIRES: the connection has an owner
void ConnectionTable::disown(Connection& connection) {
  --owned_with(connection);
  connection.has_owner = false;
  if (connection.info.state != State::kDreqSent) return release_if_done(connection);
  const bool may_wait = unanswered_.allows(connection.info.account);
  unanswered_.take(connection.info.account);
  if (!may_wait) release(connection);
}

Result<Connection*> ConnectionTable::find_owned(LocalId id) {
  Connection* const connection = find(id);
  if (connection == nullptr || !connection->has_owner) return fail(ENOENT);
  return connection;
}

Result<Connection*> ConnectionTable::find_owned(LocalId id, StateSet states) {
  const auto connection = find_owned(id);
  if (connection && !states.has((*connection)->info.state)) return fail(EINVAL);
  return connection;
}

const Connection* ConnectionTable::next_by_local_qpn(uint32_t qpn, LocalId id) const {
  const auto found = by_local_qpn_.lower_bound({qpn, id});
  return found != by_local_qpn_.end() ? find(found->second) : nullptr;
}

void ConnectionTable::insert_remote_numbers(Connection& connection) {
  by_remote_id_.emplace(remote_id_of(connection), &connection);
  if (connection.info.remote_qpn == 0) return;  // no QP
  by_remote_qpn_.emplace(remote_qpn_of(connection), &connection);
}

void ConnectionTable::insert_sidr_request(Connection& connection) {
  sidr_requests_.emplace(remote_id_of(connection), &connection);
}

void ConnectionTable::erase_from(ByPeer& index, const PeerNumber& key, const Connection& connection) {
  const auto [first, last] = index.equal_range(key);
  const auto found =
      std::find_if(first, last, [&](const auto& entry) { return entry.second == &connection; });
  if (found != last) index.erase(found);
}

void ConnectionTable::set_timer(Connection& connection, TimePoint when) {
  cancel_timer(connection);
  timers_.insert({connection.info.account, when, connection.info.local_id});
  connection.expires = when;
  sink_.on_timer_set(connection.info.account, when);
}

void ConnectionTable::cancel_timer(Connection& connection) {
  if (connection.expires == kNever) return;
  timers_.erase({connection.info.account, connection.expires, connection.info.local_id});
  connection.expires = kNever;
}

TimePoint ConnectionTable::deadline(uint32_t account) const {
  const auto first = timers_.lower_bound({account, TimePoint::min(), 0});
  return first != timers_.end() && first->account == account ? first->when : kNever;
}

Connection& ConnectionTable::next_due(uint32_t account) const {
  return *find(timers_.lower_bound({account, TimePoint::min(), 0})->id);
}

uint32_t ConnectionTable::next_account() const {
  Timer next{0, kNever, 0};
  for (auto first = timers_.begin(); first != timers_.end();
       first = timers_.upper_bound({first->account, kNever, UINT32_MAX})) {
    if (first->when < next.when) next = *first;
  }
  return next.account;
}

// REQUIRES: the local QPN does not change while the connection holds it
void ConnectionTable::update_local_qpn(const Connection& connection, State state) {
  const std::pair place{connection.info.local_qpn, connection.info.local_id};
  if (place.first == 0) return;  // no QP
  if (kHoldsLocalQpn.has(state)) {
    by_local_qpn_.insert(place);
  } else {
    by_local_qpn_.erase(place);
  }
}

// Updates the indexes and counts that depend on the state.
void ConnectionTable::enter(Connection& connection, State state) {
  State& current = connection.info.state;
  if (kHalfOpen.has(state)) half_open_.take(connection.info.account);
  if (kHalfOpen.has(current)) half_open_.give_back(connection.info.account);
  if (!connection.has_owner && current == State::kDreqSent) unanswered_.give_back(connection.info.account);
  if (kHoldsRemoteQpn.has(current) && !kHoldsRemoteQpn.has(state)) {
    erase_from(by_remote_qpn_, remote_qpn_of(connection), connection);
  }
  if (state == State::kIdle && !connection.lingers) {
    erase_from(by_remote_id_, remote_id_of(connection), connection);
    erase_from(sidr_requests_, remote_id_of(connection), connection);
  }
  update_local_qpn(connection, state);
  cancel_timer(connection);
  if (connection.has_owner) --owned_with(connection);
  current = state;
  if (connection.has_owner) ++owned_with(connection);
}

// Waits as long as packets of the connection can be under way: the local ACK timeout (IBTA volume 1,
// 12.9.8.4).
void ConnectionTable::enter_time_wait(Connection& connection, TimePoint now) {
  enter(connection, State::kTimeWait);
  wait_until(connection, now + config_.response_time(connection.info.ack_timeout), now);
}

void ConnectionTable::linger(Connection& connection, TimePoint now) {
  connection.lingers = true;
  enter(connection, State::kIdle);
  wait_until(connection, now + kLinger, now);
}

void ConnectionTable::stop_waiting(Connection& connection) {
  unlink_wait(connection);
  enter(connection, State::kIdle);
}

void ConnectionTable::await_owner(Connection& connection, TimePoint now) {
  connection.retries_left = 0;
  set_timer(connection, now + config_.longest_silence);
}

void ConnectionTable::wait_until(Connection& connection, TimePoint when, TimePoint now) {
  connection.retries_left = 0;
  set_timer(connection, when);
  waits_.push_back(connection);
  if (++waiting_ > config_.max_waiting) cut_oldest_wait_short(now);
}

void ConnectionTable::cut_oldest_wait_short(TimePoint now) {
  ++counters_.time_wait_cut_short;
  Connection& oldest = waits_.pop_front();
  --waiting_;
  if (oldest.has_owner && oldest.info.state == State::kTimeWait) {
    oldest.retries_left = 0;
    set_timer(oldest, now);  // its owner must get the event from on_timer()
    return;
  }
  oldest.lingers = false;
  enter(oldest, State::kIdle);
  release_if_done(oldest);
}

void ConnectionTable::unlink_wait(Connection& connection) {
  connection.lingers = false;
  if (!connection.wait_hook.is_linked()) return;
  connection.wait_hook.unlink();
  --waiting_;
}

}  // namespace verbena::cm
