// SPDX-License-Identifier: Apache-2.0
// Addresses, shutdown and close, waiting, and queries: options, state, errors.
#include "libraries/rsockets/stream.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace verbena::rsockets {
namespace {

// How long shutdown() and close() wait for a peer that accepts nothing.
constexpr Duration kStreamLinger = std::chrono::seconds(60);

}  // namespace

Result<std::shared_ptr<Stream>> Stream::create(int family) {
  const auto service = Service::instance();
  if (!service) return fail(service.error().code);
  std::shared_ptr<Stream> stream(new Stream(**service, family));
  auto number = open_number();
  if (!number) return fail(number.error().code);
  stream->number_ = OwnFd::with_known_number(std::move(*number));
  const auto created = stream->create_identifier();
  if (!created) return fail(created.error().code);
  stream->id_ = *created;
  return stream;
}

Stream::~Stream() {
  {
    // Ignores further events: the queue pair is destroyed before the identifier, and so before the last
    // event.
    const std::lock_guard lock(event_mutex_);
    detached_ = true;
  }
  maps_.clear();
  qp_.reset();
  if (id_ != nullptr) ::rdma_destroy_id(id_);
}

Result<UniqueFd> Stream::open_number() {
  UniqueFd number(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!number) return fail(errno);
  return number;
}

Result<rdma_cm_id*> Stream::create_identifier() {
  auto* self = static_cast<CmHandler*>(this);
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(service_.channel(), &id, self, RDMA_PS_TCP) != 0) return fail(errno);
  return id;
}

Result<void> Stream::bind(const Address& address) {
  const std::lock_guard lock(mutex_);
  if (phase() != Phase::kNew) return fail(EINVAL);
  Address copy = address;
  if (::rdma_bind_addr(id_, copy.get()) != 0) return fail(errno);
  bound_ = Address::from(::rdma_get_local_addr(id_));
  phase_.store(Phase::kBound, std::memory_order_release);
  return {};
}

Result<Address> Stream::local_address() {
  const std::lock_guard lock(mutex_);
  const Address address = Address::from(::rdma_get_local_addr(id_));
  return address.family() == 0 ? Address::any(family_) : address;
}

Result<Address> Stream::peer_address() {
  const std::lock_guard lock(mutex_);
  if (phase() != Phase::kConnected) return fail(ENOTCONN);
  return Address::from(::rdma_get_peer_addr(id_));
}

Result<void> Stream::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail(EINVAL);
  if (phase() != Phase::kConnected) return fail(ENOTCONN);
  StreamQp& qp = *qp_;
  if (how != SHUT_RD) {
    shut_.store(true, std::memory_order_relaxed);
    qp.stop_writing();
  }
  if (how != SHUT_WR) qp.stop_reading();
  wake_waiters();
  // Only our reading has ended: the peer need not know until we stop writing, too.
  if (!qp.is_up() || qp.is_writable()) return {};
  const Control what = qp.is_readable() ? Control::kShutdown : Control::kDisconnect;
  const TimePoint deadline = MonotonicClock::now() + kStreamLinger;
  for (bool sent = false; qp.is_up();) {
    if (!sent) {
      const auto done = qp.control(what);
      if (!done) return fail(done.error().code);
      sent = *done;
    }
    const auto waited = wait_for(*this, sent ? kFlushed : kControlRoom, deadline);
    if (waited ? sent : waited.error().code != EINTR) break;
  }
  return {};
}

void Stream::close() {
  service_.set_timer(shared_from_this(), Duration::zero());
  if (phase() == Phase::kConnected) {
    if (qp_->is_up()) (void)shutdown(SHUT_RDWR);
    qp_->break_off(0);
    wake_waiters();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    phase_.store(Phase::kClosed, std::memory_order_release);
  }
  waiters().wake(~0u);
  if (!queue_) return;
  auto rest = queue_->close();
  for (const Request& request : rest.requests) {
    refuse(request.id);
    ::rdma_destroy_id(request.id);
  }
}

void Stream::on_timer() {
  if (phase() == Phase::kListening) {
    serving_.store(true);
    return serve_requests();
  }
  if (phase() != Phase::kConnected) return;
  qp_->keep_alive();
  wake_waiters();
  part_if_broken();
}

Interest Stream::ready(Interest interest) {
  switch (phase()) {
    case Phase::kConnected: {
      if (qp_->progress()) wake_waiters();
      part_if_broken();
      return qp_->look(interest) | (interest & kOpened);
    }
    case Phase::kListening:
      start_serving();
      return (interest & POLLIN) != 0 && queue_->has_ready() ? POLLIN : 0;
    case Phase::kFailed:
      return (interest & (POLLIN | POLLOUT | kOpened)) | POLLERR;
    case Phase::kClosed:
      return interest | POLLNVAL;
    default:
      return 0;
  }
}

// Disconnects a connection that broke on this side, so that the connection manager tells the peer.
void Stream::part_if_broken() {
  if (!qp_->is_broken() || parted_.exchange(true)) return;
  ::rdma_disconnect(id_);
}

StreamOptions::Stage Stream::stage() const {
  const Phase now = phase();
  return {.id = id_,
          .is_new = now == Phase::kNew,
          .may_be_sized = now == Phase::kNew || now == Phase::kBound || now == Phase::kListening,
          .sizes = qp_ ? &qp_->sizes() : nullptr};
}

Result<void> Stream::set_option(int level, int name, const void* value, socklen_t length) {
  const std::lock_guard lock(mutex_);
  const auto before = options_.keep_alive_period();
  auto done = options_.set(stage(), level, name, value, length);
  const auto period = options_.keep_alive_period();
  // A listener has no peer to keep alive.
  if (period != before && phase() != Phase::kListening) service_.set_timer(shared_from_this(), period);
  return done;
}

Result<void> Stream::get_option(int level, int name, OptionValue value) {
  const std::lock_guard lock(mutex_);
  if (level == SOL_SOCKET) {
    switch (name) {
      case SO_TYPE:
        return value.set(int{SOCK_STREAM});
      case SO_DOMAIN:
        return value.set(family_);
      case SO_PROTOCOL:
        return value.set(int{IPPROTO_TCP});
      case SO_ACCEPTCONN:
        return value.set(int{phase() == Phase::kListening});
      case SO_ERROR:
        return value.set(phase() == Phase::kConnected ? qp_->take_error() : std::exchange(error_, 0));
      default:
        break;
    }
  }
  if (level == IPPROTO_TCP && name == TCP_MAXSEG) return value.set(static_cast<int>(largest_segment()));
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    // Fills the few known fields: iperf3 asks for TCP_INFO and does not check for failure.
    const tcp_info info = information();
    return value.set(&info, std::min<size_t>(value.room(), sizeof info));
  }
  return options_.get(stage(), level, name, value);
}

// Fills the state and segment sizes. Retransmissions, round trips and windows are internal to the queue pair,
// and 0 here.
tcp_info Stream::information() const {
  tcp_info info{};
  info.tcpi_state = phase() == Phase::kConnected   ? TCP_ESTABLISHED
                    : phase() == Phase::kListening ? TCP_LISTEN
                                                   : TCP_CLOSE;
  info.tcpi_snd_mss = info.tcpi_rcv_mss = info.tcpi_advmss = info.tcpi_pmtu = largest_segment();
  return info;
}

uint32_t Stream::largest_segment() const {
  const rdma_route& route = id_->route;
  return route.num_paths > 0 ? 1u << (7 + route.path_rec->mtu) : 2048;
}

}  // namespace verbena::rsockets
