// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/datagram.h"

#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/plain_calls.h"
#include "base/route_search.h"

namespace verbena::rsockets {
namespace {

constexpr Duration kDatagramLinger = std::chrono::seconds(1);

Result<Address> name_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  Address name;
  socklen_t length = sizeof(sockaddr_in6);
  if (ask(fd, name.get(), &length) != 0) return fail(errno);
  return name;
}

}  // namespace

Result<std::shared_ptr<Socket>> Datagram::create(int family) {
  const auto service = Service::instance();
  if (!service) return fail(service.error().code);
  std::shared_ptr<Datagram> datagram(new Datagram(**service));
  datagram->udp_ = OwnFd::with_known_number(UniqueFd(plain_socket(family, SOCK_DGRAM, IPPROTO_UDP)));
  if (!datagram->udp_) return fail(errno);
  datagram->epoll_ = UniqueFd(plain_epoll_create());
  if (!datagram->epoll_) return fail(errno);
  return datagram;
}

Datagram::~Datagram() {
  if (udp_) service_.forget(udp_.get());
  arrivals_.clear();
  destinations_.clear();
  queue_pairs_.clear();
}

// Starts reading the UDP socket in the service's thread. No datagram can arrive before the socket has a port.
Result<void> Datagram::start() {
  const std::lock_guard lock(mutex_);
  if (closed_.load()) return fail(EBADF);
  if (started_) return {};
  const auto local = name_of(udp_.get(), ::getsockname);
  if (!local) return fail(local.error().code);
  if (local->port() == 0) {
    // Binds now rather than with the first datagram, because headers contain the port.
    if (::bind(udp_.get(), local->get(), local->size()) != 0) return fail(errno);
  }
  if (auto watched = service_.watch(udp_.get(), weak_from_this()); !watched) return watched;
  started_ = true;
  return {};
}

Result<void> Datagram::bind(const Address& address) {
  if (::bind(udp_.get(), address.get(), address.size()) != 0) return fail(errno);
  return start();
}

Result<void> Datagram::connect(const Address& address) {
  if (auto started = start(); !started) return started;
  const std::lock_guard lock(mutex_);
  const auto found = destination(address);
  if (!found) return fail(found.error().code);
  if (::connect(udp_.get(), address.get(), address.size()) != 0) return fail(errno);
  connected_ = *found;
  const auto peer = peer_address();
  if (!peer) return fail(peer.error().code);
  // Accepts datagrams only from the connected peer. The kernel filters the UDP socket. The address has no
  // scope, because headers contain none.
  const std::lock_guard poll_lock(poll_mutex_);
  heard_ = peer->family() == AF_INET6 ? Address::ipv6(peer->v6().sin6_addr, peer->port()) : *peer;
  return {};
}

Result<void> Datagram::shutdown(int how) {
  if (::shutdown(udp_.get(), how) != 0) return fail(errno);
  if (how != SHUT_WR) reading_shut_.store(true);
  waiters().wake(~0u);
  return {};
}

void Datagram::close() {
  service_.forget(udp_.get());
  closed_.store(true);
  waiters().wake(~0u);
  // Waits for sends that the application has completed but the adapter may not have.
  const TimePoint deadline = MonotonicClock::now() + kDatagramLinger;
  for (auto flushed = wait_for(*this, kFlushed, deadline); !flushed && flushed.error().code == EINTR;) {
    flushed = wait_for(*this, kFlushed, deadline);
  }
}

Result<Address> Datagram::local_address() {
  return name_of(udp_.get(), ::getsockname);
}

Result<Address> Datagram::peer_address() {
  return name_of(udp_.get(), ::getpeername);
}

// Passes all options but rsockets' own to the UDP socket, which stores them.
Result<void> Datagram::set_option(int level, int name, const void* value, socklen_t length) {
  if (level != SOL_RDMA) {
    if (::setsockopt(udp_.get(), level, name, value, length) != 0) return fail(errno);
    if (level != SOL_SOCKET || (name != SO_RCVBUF && name != SO_SNDBUF)) return {};
  }
  const auto number = int_option(value, length);
  if (!number) return fail(number.error().code);
  const uint32_t wanted = static_cast<uint32_t>(std::clamp(*number, 0, 1 << 30));
  const std::lock_guard lock(mutex_);
  if (level == SOL_SOCKET) {
    (name == SO_RCVBUF ? sizes_.receive_bytes : sizes_.send_bytes) = std::min(wanted, 1u << 29) * 2;
    return {};
  }
  const auto size = size_option(name);
  if (size == nullptr) return fail(EOPNOTSUPP);
  sizes_.*size = std::min(wanted, kMaxQueueEntries);
  return {};
}

Result<void> Datagram::get_option(int level, int name, OptionValue value) {
  if (level != SOL_RDMA) {
    std::byte kernels[128];
    socklen_t length = std::min<socklen_t>(value.room(), sizeof kernels);
    if (::getsockopt(udp_.get(), level, name, kernels, &length) != 0) return fail(errno);
    return value.set(kernels, length);
  }
  const std::lock_guard lock(mutex_);
  const auto size = size_option(name);
  return size != nullptr ? value.set(static_cast<int>(sizes_.*size)) : fail(EOPNOTSUPP);
}

// Returns the local address for packets to `address`: the bound address or, if none is bound, the result of
// routing.
Result<Address> Datagram::local_address_towards(const Address& address) {
  auto own = local_address();
  if (!own || !own->is_wildcard()) return own;
  const UniqueFd probe(plain_socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!probe || ::connect(probe.get(), address.get(), address.size()) != 0) return fail(errno);
  auto routed = name_of(probe.get(), ::getsockname);
  if (routed) routed->set_port(own->port());
  return routed;
}

Result<DatagramQp*> Datagram::queue_pair(const Address& local, Wanted wanted) {
  for (const auto& qp : queue_pairs_) {
    if (qp->local() == local) return qp.get();
  }
  if (wanted == Wanted::kByPeer && failures_.contains(local, MonotonicClock::now())) return fail(ENODEV);
  auto created = DatagramQp::create(service_, local, sizes_);
  if (!created) {
    failures_.add(local, MonotonicClock::now());
    return fail(created.error().code);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  if (plain_epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, (*created)->event_descriptor(), &event) != 0)
    return fail(errno);
  const std::lock_guard lock(poll_mutex_);
  queue_pairs_.push_back(std::move(*created));
  return queue_pairs_.back().get();
}

Result<Datagram::Destination*> Datagram::destination(const Address& address, Wanted wanted) {
  if (Destination* const known = destinations_.find(address)) return known;
  const auto local = local_address_towards(address);
  if (!local) return fail(local.error().code);
  const auto qp = queue_pair(*local, wanted);
  if (!qp) return fail(qp.error().code);
  auto fresh = std::make_unique<Destination>();
  fresh->address = address;
  fresh->qp = *qp;
  // Do not evict a destination with a running query: its answer may be waiting for our lock in the service's
  // thread.
  Destination* const added = destinations_.add(address, std::move(fresh), [&](const Destination& other) {
    return !other.query && &other != connected_;
  });
  if (added == nullptr) return fail(ENOBUFS);
  return added;
}

bool Datagram::poll_queue_pairs() {
  bool any = false;
  const std::lock_guard lock(poll_mutex_);
  for (const auto& qp : queue_pairs_) {
    qp->poll([&](uint32_t slot, const DatagramHeader& header, ConstBytes payload) {
      if (heard_.family() != 0 && header.source != heard_) return qp->give_back(slot);
      any = true;
      arrivals_.push_back({header.source, qp.get(), slot, payload, {}});
    });
  }
  return any;
}

Interest Datagram::ready(Interest interest) {
  if (udp_looks_.load(std::memory_order_relaxed) > 0 && !read_udp()) {
    udp_looks_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (poll_queue_pairs()) waiters().wake(POLLIN | POLLOUT);
  const std::lock_guard lock(poll_mutex_);
  Interest found = kOpened | kControlRoom;
  if (!arrivals_.empty() || reading_shut_.load() || closed_.load()) found |= POLLIN;
  const auto all = [&](bool (DatagramQp::*holds)() const) {
    return std::all_of(queue_pairs_.begin(), queue_pairs_.end(),
                       [&](const auto& qp) { return ((*qp).*holds)(); });
  };
  if (all(&DatagramQp::may_send)) found |= POLLOUT;
  if (all(&DatagramQp::all_sent)) found |= kFlushed;
  return found & interest;
}

Interest Datagram::arm(Interest interest) {
  {
    const std::lock_guard lock(poll_mutex_);
    for (const auto& qp : queue_pairs_) qp->arm();
  }
  return ready(interest);
}

void Datagram::take_event() {
  const bool again = waiters().is_shared();
  const std::lock_guard lock(poll_mutex_);
  for (const auto& qp : queue_pairs_) qp->take_event(again);
}

namespace {

constexpr size_t kMaxArrivals = 1024;  // queued copies of datagrams from the UDP socket
constexpr int kUdpBatch = 64;
constexpr int kUdpLooks = 1000;

}  // namespace

Result<size_t> Datagram::receive(Buffers into, int flags, Address* source) {
  if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) return fail(EOPNOTSUPP);
  if (auto started = start(); !started) return fail(started.error().code);
  const bool waits = may_block(flags);
  const auto lock_of_readers = turn(receive_mutex_, waits);
  if (!lock_of_readers) return fail(EAGAIN);
  for (;;) {
    {
      const std::lock_guard lock(poll_mutex_);
      if (!arrivals_.empty()) {
        Arrival& first = arrivals_.front();
        const size_t whole = first.payload.size();
        const size_t length = std::min(whole, into.size());
        into.write(first.payload.data(), length);
        if (source != nullptr) *source = first.source;
        if ((flags & MSG_PEEK) == 0) {
          if (first.qp != nullptr) first.qp->give_back(first.slot);
          arrivals_.pop_front();
        }
        return (flags & MSG_TRUNC) != 0 ? whole : length;
      }
    }
    if (closed_.load()) return fail(EBADF);
    if (reading_shut_.load()) return 0;
    if (const auto waited = await(*this, POLLIN, waits); !waited) return fail(waited.error().code);
  }
}

Result<size_t> Datagram::send(Buffers from, int flags, const Address* destination_wanted) {
  if ((flags & MSG_OOB) != 0) return fail(EOPNOTSUPP);
  if (auto started = start(); !started) return fail(started.error().code);
  const size_t length = from.size();
  for (;;) {
    bool by_udp = false;
    {
      const std::lock_guard lock(mutex_);
      Destination* to = connected_;
      if (destination_wanted != nullptr) {
        const auto found = destination(*destination_wanted);
        if (!found) return fail(found.error().code);
        to = *found;
      }
      if (to == nullptr) return fail(EDESTADDRREQ);
      const size_t packet = std::min<size_t>({kDatagramBytes, to->qp->mtu(), to->mtu});
      by_udp = !to->handle || to->qp->header_size() + length > packet;
      if (by_udp) {
        // Must not wait here: the service's thread takes this lock, and serves other rsockets, too.
        auto sent = send_udp(*to, UdpHeader::Kind::kData, from, flags | MSG_DONTWAIT);
        if (sent || sent.error().code != EAGAIN || !may_block(flags)) return sent;
      } else {
        if (!to->qp->may_send()) (void)poll_queue_pairs();
        if (to->qp->may_send()) {
          if (auto sent = to->qp->send(from, to->handle.get(), to->number); !sent)
            return fail(sent.error().code);
          return length;
        }
      }
    }
    if (closed_.load()) return fail(EBADF);
    const auto waited = by_udp ? await_room(udp_.get()) : await(*this, POLLOUT, may_block(flags));
    if (!waited) return fail(waited.error().code);
  }
}

Result<size_t> Datagram::send_udp(const Destination& to, UdpHeader::Kind kind, Buffers payload, int flags) {
  const UdpHeader header{kind, to.qp->number(), to.qp->local()};
  const size_t length = payload.size();
  // Longer than needed: GCC 14 does not see that the data end within kDatagramBytes.
  std::array<std::byte, kDatagramBytes + UdpHeader::kMaxBytes> datagram;
  const size_t header_length = header.size();
  if (header_length + length > kDatagramBytes) return fail(EMSGSIZE);
  header.encode(datagram.data());
  payload.read(datagram.data() + header_length, length);
  const bool named = &to != connected_;  // a connected UDP socket takes no destination
  const ssize_t sent = ::sendto(udp_.get(), datagram.data(), header_length + length, flags,
                                named ? to.address.get() : nullptr, named ? to.address.size() : 0);
  if (sent < 0) return fail(errno);
  return length;
}

void Datagram::on_readable() {
  for (int i = 0; i < kUdpBatch && read_udp(); ++i) {
  }
}

// Reads one datagram from the UDP socket; false if there is none. The service's thread calls this. Threads of
// the application do so, too, after data have arrived by UDP, as data that fit no packet of the path do.
bool Datagram::read_udp() {
  std::array<std::byte, kDatagramBytes> datagram;
  Address source;
  socklen_t source_length = sizeof(sockaddr_in6);
  const ssize_t length = ::recvfrom(udp_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_TRUNC,
                                    source.get(), &source_length);
  if (length < 0) return errno != EAGAIN && errno != EINTR;  // the kernel reports a refused datagram once
  if (static_cast<size_t>(length) <= datagram.size()) {
    on_udp(source, ConstBytes(datagram).first(static_cast<size_t>(length)));
  }
  return true;
}

void Datagram::on_udp(const Address& source, ConstBytes datagram) {
  const auto header = UdpHeader::decode(datagram, source.family());
  if (!header) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = destination(source, Wanted::kByPeer);
    if (!found) {
      log_debug("rsocket: a datagram from where none can be sent: error {}", found.error().code);
      return;
    }
    if (header->kind == UdpHeader::Kind::kData) {
      (void)send_udp(**found, UdpHeader::Kind::kControl, Buffers(nullptr, 0), MSG_DONTWAIT);
    }
    learn(**found, header->qpn);
  }
  if (header->kind != UdpHeader::Kind::kData) return;
  udp_looks_.store(kUdpLooks, std::memory_order_relaxed);
  deliver(source, datagram.subspan(header->size()));
}

// Stores the queue pair number of a destination. Starts a path query, unless the path is known or being
// queried.
void Datagram::learn(Destination& destination, uint32_t number) {
  destination.number = number;
  if (destination.handle || destination.query) return;
  const auto answer = [self = weak_from_this(), address = destination.address](const Result<UdPath>& path) {
    if (const auto datagram = self.lock()) datagram->on_path(address, path);
  };
  auto query = PathQuery::start(service_, destination.qp->local(), destination.address, answer);
  if (query) destination.query = std::move(*query);
}

void Datagram::on_path(const Address& address, const Result<UdPath>& path) {
  service_.retire(shared_from_this());
  const std::lock_guard lock(mutex_);
  Destination* const found = destinations_.find(address);
  if (found == nullptr) return;
  Destination& destination = *found;
  service_.retire(std::exchange(destination.query, nullptr));
  if (!path) return;  // the next datagram from this address starts another query
  ibv_ah_attr attributes = path->attributes;
  ibv_pd* const domain = destination.qp->domain();
  // ibv_create_ah() would wait for a neighbour that has gone since the query.
  if (!search_route(domain->context, attributes)) return;
  destination.handle.reset(ibv_create_ah(domain, &attributes));
  destination.mtu = path->mtu;
}

void Datagram::deliver(const Address& source, ConstBytes payload) {
  {
    const std::lock_guard lock(poll_mutex_);
    if (arrivals_.size() >= kMaxArrivals) return;  // dropped, as by a full UDP socket
    Arrival& arrival = arrivals_.emplace_back(
        Arrival{source, nullptr, 0, {}, std::vector<std::byte>(payload.begin(), payload.end())});
    arrival.payload = arrival.copy;
  }
  waiters().wake(POLLIN);
}

}  // namespace verbena::rsockets
