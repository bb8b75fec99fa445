// SPDX-License-Identifier: Apache-2.0
// Sending and receiving datagrams, by either route.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>

#include "base/log.h"
#include "libraries/rsockets/datagram.h"
#include "libraries/rsockets/waiting.h"

namespace verbena::rsockets {
namespace {

constexpr size_t kMaxArrivals = 1024;  // queued copies of datagrams from the UDP socket
constexpr int kUdpBatch = 64;
constexpr int kUdpLooks = 1000;

}  // namespace

Result<size_t> Datagram::receive(Buffers into, int flags, Address* source) {
  if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) return fail(EOPNOTSUPP);
  if (auto started = start(); !started) return fail(started.error().code);
  const bool waits = may_block(flags);
  std::unique_lock turn(receive_mutex_, std::defer_lock);
  if (waits) {
    turn.lock();
  } else if (!turn.try_lock()) {
    return fail(EAGAIN);
  }
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
  std::array<std::byte, kDatagramBytes> datagram;
  if (header.size() + length > datagram.size()) return fail(EMSGSIZE);
  const size_t header_length = header.encode(datagram.data());
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
    const auto found = destination(source);
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
  destination.handle.reset(ibv_create_ah(destination.qp->domain(), &attributes));
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
