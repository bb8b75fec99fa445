// SPDX-License-Identifier: Apache-2.0
// Listening streams, and the streams that they accept.
#include <poll.h>

#include "base/route_search.h"
#include "libraries/rsockets/stream.h"

namespace verbena::rsockets {
namespace {

constexpr int kMaxBacklog = 4096;  // the default of net.core.somaxconn

// How long the first requests wait for the application to configure its listener. Programs set the listener's
// options after rlisten() (riostream: the room for the peer's mappings), and a reply contains the values at
// that time. Between hosts no request arrives that early; on one host a request may have been waiting for the
// listener.
constexpr Duration kFirstLook = std::chrono::milliseconds(100);

size_t queue_length(int backlog) {
  // Adds one, as TCP does: a backlog of 0 still takes a connection.
  return static_cast<size_t>(backlog < 0 ? kMaxBacklog : std::min(backlog, kMaxBacklog)) + 1;
}

// Whether the requester's hardware address is known, so that rdma_accept() does not wait for it.
bool can_be_answered(rdma_cm_id* id) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  int mask;
  // If this fails, rdma_accept() fails for the same reason.
  return ::rdma_init_qp_attr(id, &attributes, &mask) != 0 || search_route(id->verbs, attributes.ah_attr);
}

}  // namespace

Result<void> Stream::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  if (phase() == Phase::kListening) {
    queue_->set_backlog(queue_length(backlog));
    return {};
  }
  if (phase() == Phase::kNew) {
    // Not bound yet: takes any address, and a port of the system's choice.
    Address any = Address::any(family_);
    if (::rdma_bind_addr(id_, any.get()) != 0) return fail(errno);
    phase_.store(Phase::kBound, std::memory_order_release);
  }
  if (phase() != Phase::kBound) return fail(EINVAL);
  queue_ = std::make_unique<Queue>(queue_length(backlog), service_.listener_shares());
  // Unanswered requests wait in queue_: the service takes each from the connection manager at once.
  phase_.store(Phase::kListening, std::memory_order_release);
  if (::rdma_listen(id_, static_cast<int>(Queue::kMaxRequests)) != 0) {
    const int code = errno;
    phase_.store(Phase::kBound, std::memory_order_release);
    return fail(code);
  }
  service_.call_at(shared_from_this(), MonotonicClock::now() + kFirstLook);
  return {};
}

// Starts to answer requests: the application waits for connections, or has had time to configure the
// listener.
void Stream::start_serving() {
  if (serving_.load(std::memory_order_acquire) || serving_.exchange(true)) return;
  set_turn();
}

Result<std::shared_ptr<Socket>> Stream::accept() {
  for (;;) {
    if (phase() != Phase::kListening) return fail(phase() == Phase::kClosed ? EBADF : EINVAL);
    start_serving();
    if (queue_->has_ready()) {
      // Reserves a new number now, as accept(2) does. librspreload relies on it: its select() recognizes an
      // rsocket only by a number above the number that it last gave to the application.
      auto number = open_number();
      if (!number) return fail(number.error().code);
      if (auto stream = queue_->accept()) {
        stream->number_ = OwnFd::with_known_number(std::move(*number));
        set_turn();
        return stream;
      }
    }
    if (!may_block(0)) return fail(EAGAIN);
    if (const auto waited = wait_for(*this, POLLIN); !waited) return fail(waited.error().code);
  }
}

// Destroys an identifier after the event being handled, which may be its own.
std::shared_ptr<void> Stream::destroyed_later(rdma_cm_id* id) {
  return {id, [](rdma_cm_id* gone) { ::rdma_destroy_id(gone); }};
}

void Stream::on_request(const rdma_cm_event& event) {
  const rdma_conn_param& parameters = event.param.conn;
  const auto peer = ConnectData::decode(
      {static_cast<const std::byte*>(parameters.private_data), parameters.private_data_len});
  event.id->context = static_cast<CmHandler*>(this);
  if (!peer || phase() != Phase::kListening || !queue_->add_request({event.id, *peer, parameters})) {
    refuse(event.id);
    return service_.retire(destroyed_later(event.id));
  }
  serve_requests();
}

// Answers one request, in the service's thread, and looks once for the sender of another. Then others of the
// service have their turn. The thread must not wait for a sender that answers no ARP: it serves all rsockets
// of the process.
void Stream::serve_requests() {
  {
    const std::lock_guard lock(turn_mutex_);
    turn_ = kNever;
  }
  if (!serving_.load()) return;
  const TimePoint now = MonotonicClock::now();
  if (const auto request = queue_->next_request()) {
    if (can_be_answered(request->id)) {
      if (!answer(*request)) turn_away(*request);
    } else if (const auto rejected = queue_->set_aside(*request, now)) {
      turn_away(*rejected);
    }
  }
  const auto is_known = [](const Request& request) { return can_be_answered(request.id); };
  if (const auto rejected = queue_->look_again(now, is_known)) turn_away(*rejected);
  set_turn();
}

// Sets the service's timer for the next call of serve_requests(). Any thread.
void Stream::set_turn() {
  const std::lock_guard lock(turn_mutex_);
  const TimePoint next = queue_->next_turn(MonotonicClock::now());
  if (next >= turn_) return;
  turn_ = next;
  service_.call_at(shared_from_this(), next);
}

void Stream::turn_away(const Request& request) {
  refuse(request.id);
  service_.retire(destroyed_later(request.id));
}

// Creates a stream for the request. accept() can return it once the connection is established.
Result<void> Stream::answer(const Request& request) {
  std::shared_ptr<Stream> stream(new Stream(service_, family_));
  {
    const std::lock_guard lock(mutex_);
    stream->options_.take_sizes_of(options_);
  }
  auto qp = StreamQp::create(request.id, stream->options_.sizes());
  if (!qp) {
    queue_->given_up();
    return fail(qp.error().code);
  }
  stream->qp_ = std::move(*qp);
  stream->id_ = request.id;
  stream->listener_ = weak_from_this();
  stream->phase_.store(Phase::kAccepting, std::memory_order_release);
  stream->qp_->meet(request.peer);
  request.id->context = static_cast<CmHandler*>(stream.get());
  for (const auto& refused : queue_->opening(stream)) {
    refuse(refused->id_);
    service_.retire(refused);
    if (refused == stream) return {};
  }
  const auto introduction = stream->qp_->introduction().encode();
  rdma_conn_param parameters = request.parameters;
  parameters.private_data = introduction.data();
  parameters.private_data_len = introduction.size();
  const std::lock_guard lock(stream->mutex_);
  if (::rdma_accept(request.id, &parameters) != 0) {
    stream->phase_.store(Phase::kFailed, std::memory_order_release);
    refuse(request.id);
    service_.retire(queue_->failed(stream.get()));
  }
  return {};
}

// Reports the outcome to the listener: established or failed.
void Stream::leave_listener(bool opened) {
  const auto listener = listener_.lock();
  if (!listener) return;
  listener_.reset();
  if (opened) {
    listener->queue_->opened(this);
  } else {
    service_.retire(listener->queue_->failed(this));
    listener->set_turn();
  }
  if (listener->queue_->has_ready()) listener->waiters().wake(POLLIN);
  service_.retire(listener);
}

}  // namespace verbena::rsockets
