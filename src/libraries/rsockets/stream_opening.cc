// SPDX-License-Identifier: Apache-2.0
// Setup of a connection, from either side, and its end.
#include <cstdlib>

#include "base/settle_context.h"
#include "libraries/rsockets/stream.h"

namespace verbena::rsockets {
namespace {

constexpr int kMaxRetries = 6;  // with 1 s, 2 s, 4 s ...: about as long as TCP tries

int resolve_timeout(int retries) {
  return 1000 << retries;
}

// Converts the answer of a call that returns 0, or -1 and errno.
Result<void> done(int answer) {
  return answer == 0 ? Result<void>() : fail(errno);
}

// Returns the error of an event that reports a failed resolution.
int error_of(const rdma_cm_event& event) {
  return event.status != 0 ? std::abs(event.status) : EHOSTUNREACH;
}

// Returns until when data that arrived before DISCONNECTED may still complete. With our libibverbs, librdmacm
// has completed them already.
TimePoint end_of_completions() {
  constexpr Duration kSettling = std::chrono::milliseconds(1);
  const TimePoint now = MonotonicClock::now();
  return verbena_settle_context != nullptr ? now : now + kSettling;
}

}  // namespace

bool Stream::is_opening() const {
  switch (phase()) {
    case Phase::kResolvingAddress:
    case Phase::kResolvingRoute:
    case Phase::kConnecting:
    case Phase::kAccepting:
      return true;
    default:
      return false;
  }
}

Result<void> Stream::connect(const Address& address) {
  if (phase() == Phase::kFailed) {
    if (auto begun = begin_again(); !begun) return begun;
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_opening()) return fail(EALREADY);
    if (phase() == Phase::kConnected) {
      if (std::exchange(reported_, true)) return fail(EISCONN);
      return {};
    }
    if (phase() != Phase::kNew && phase() != Phase::kBound) return fail(EINVAL);
    if (address.family() != family_) return fail(EAFNOSUPPORT);
    destination_ = address;
    retries_ = 0;
    error_ = 0;
    if (auto begun = resolve_address(); !begun) {
      phase_.store(Phase::kFailed, std::memory_order_release);
      return begun;
    }
  }
  if (!may_block(0)) return fail(EINPROGRESS);
  do {
    if (const auto waited = wait_for(*this, kOpened); !waited) return fail(waited.error().code);
  } while (is_opening());
  const std::lock_guard lock(mutex_);
  if (phase() != Phase::kConnected) return fail(error_ != 0 ? std::exchange(error_, 0) : ECONNABORTED);
  reported_ = true;
  return {};
}

// Prepares another attempt: replaces the failed identifier, which cannot be used again, and keeps the bound
// address.
Result<void> Stream::begin_again() {
  const auto fresh = create_identifier();
  if (!fresh) return fail(fresh.error().code);
  rdma_cm_id* other = *fresh;
  bool ours = false;
  {
    const std::scoped_lock lock(event_mutex_, mutex_);
    ours = phase() == Phase::kFailed;  // false if another thread has done the same
    if (ours) {
      std::swap(id_, other);
      phase_.store(Phase::kResolvingAddress, std::memory_order_release);
    }
  }
  if (ours) {
    parted_.store(false);
    qp_.reset();
  }
  ::rdma_destroy_id(other);
  if (!ours) return {};
  const std::lock_guard lock(mutex_);
  if (bound_.family() != 0) ::rdma_bind_addr(id_, bound_.get());
  phase_.store(Phase::kNew, std::memory_order_release);
  return {};
}

Result<void> Stream::resolve_address() {
  phase_.store(Phase::kResolvingAddress, std::memory_order_release);
  const int timeout = resolve_timeout(retries_++);
  return done(::rdma_resolve_addr(id_, nullptr, destination_.get(), timeout));
}

Result<void> Stream::resolve_route() {
  phase_.store(Phase::kResolvingRoute, std::memory_order_release);
  // A route that the application set replaces resolution, if the provider supports it.
  if (options_.set_route_of(*id_)) return {};
  return done(::rdma_resolve_route(id_, resolve_timeout(retries_++)));
}

Result<void> Stream::request_connection() {
  phase_.store(Phase::kConnecting, std::memory_order_release);
  auto qp = StreamQp::create(id_, options_.sizes());
  if (!qp) return fail(qp.error().code);
  qp_ = std::move(*qp);
  const auto introduction = qp_->introduction().encode();
  rdma_conn_param parameters{};
  parameters.private_data = introduction.data();
  parameters.private_data_len = introduction.size();
  parameters.flow_control = 1;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;  // unlimited: a peer without a receive is slow, not gone
  return done(::rdma_connect(id_, &parameters));
}

Result<void> Stream::established(const rdma_conn_param& parameters) {
  if (phase() == Phase::kConnecting) {
    const auto peer = ConnectData::decode(
        {static_cast<const std::byte*>(parameters.private_data), parameters.private_data_len});
    if (!peer) return fail(peer.error().code);
    qp_->meet(*peer);
  }
  phase_.store(Phase::kConnected, std::memory_order_release);
  return {};
}

void Stream::on_cm_event(const rdma_cm_event& event) {
  const std::lock_guard lock(event_mutex_);
  if (detached_) {
    // A request that will not be answered.
    if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) service_.retire(destroyed_later(event.id));
    return;
  }
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event);
  if (event.id == id_) return on_event_of_mine(event);
  // A queued request whose sender has given up.
  if (queue_ && queue_->withdraw([&](const Request& request) { return request.id == event.id; })) {
    service_.retire(destroyed_later(event.id));
  }
}

void Stream::on_event_of_mine(const rdma_cm_event& event) {
  const bool timed_out = event.status == -ETIMEDOUT && retries_ <= kMaxRetries;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ADDR_ERROR: {
      const std::lock_guard lock(mutex_);
      if (phase() != Phase::kResolvingAddress) return;
      if (event.event == RDMA_CM_EVENT_ADDR_RESOLVED) {
        retries_ = 0;
        return step(resolve_route());
      }
      return step(timed_out ? resolve_address() : fail(error_of(event)));
    }
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_ERROR: {
      const std::lock_guard lock(mutex_);
      if (phase() != Phase::kResolvingRoute) return;
      if (event.event == RDMA_CM_EVENT_ROUTE_RESOLVED) return step(request_connection());
      return step(timed_out ? resolve_route() : fail(error_of(event)));
    }
    case RDMA_CM_EVENT_ESTABLISHED: {
      {
        const std::lock_guard lock(mutex_);
        if (!is_opening()) return;
        step(established(event.param.conn));
      }
      return on_established();
    }
    case RDMA_CM_EVENT_REJECTED:
      return on_failure(event, ECONNREFUSED);
    case RDMA_CM_EVENT_UNREACHABLE:
      return on_failure(event, ETIMEDOUT);
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return on_failure(event, ECONNABORTED);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return on_failure(event, ENODEV);
    case RDMA_CM_EVENT_DISCONNECTED:
      return on_disconnected();
    default:
      return;  // changed addresses, the end of TIMEWAIT: nothing to do
  }
}

// Handles the peer's confirmation of the connection, after established() has checked its connection data.
void Stream::on_established() {
  if (phase() != Phase::kConnected) {
    // The peer's connection data are invalid: disconnect, so that it knows.
    if (!parted_.exchange(true)) ::rdma_disconnect(id_);
    return;
  }
  leave_listener(true);
  (void)ready(0);  // grants the second half of our buffer to the peer
  wake_waiters();
}

void Stream::fail_opening(int error) {
  if (phase() == Phase::kClosed) return;
  error_ = error;
  phase_.store(Phase::kFailed, std::memory_order_release);
  waiters().wake(~0u);
}

void Stream::on_failure(const rdma_cm_event& event, int fallback) {
  if (phase() == Phase::kConnected) {
    qp_->break_off(fallback);
    return wake_waiters();
  }
  {
    const std::lock_guard lock(mutex_);
    // The status of a rejection is a REJ reason, not an errno value.
    const bool number = event.event != RDMA_CM_EVENT_REJECTED && event.status < 0;
    fail_opening(number ? -event.status : fallback);
  }
  leave_listener(false);
}

void Stream::on_disconnected() {
  if (phase() == Phase::kConnected) {
    qp_->end(end_of_completions());
    wake_waiters();
  } else {
    {
      const std::lock_guard lock(mutex_);
      fail_opening(ECONNRESET);
    }
    leave_listener(false);
  }
  // Replies at once, so that the peer need not wait until the application closes its side.
  if (!parted_.exchange(true)) ::rdma_disconnect(id_);
}

}  // namespace verbena::rsockets
