// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/neighbours.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "adapter/net/udp/neighbour_search.h"
#include "agent/cm/neighbour_message.h"
#include "base/log.h"

namespace verbena::agent {
namespace {

// Number of waits for one neighbour that end per round of the loop: 131,072 identifiers may wait for it.
constexpr size_t kAtOnce = 64;
// Maximum number of datagrams of the kernel per round.
constexpr int kDatagramsAtOnce = 64;
constexpr Duration kPause = std::chrono::milliseconds(500);

}  // namespace

void Neighbours::Closer::operator()(mnl_socket* socket) const {
  mnl_socket_close(socket);
}

Neighbours::~Neighbours() {
  stop_listening();
  for (const auto& [ticket, waiting] : waiting_) loop_.cancel(waiting.timer);
}

Neighbours::Key Neighbours::key_of(uint32_t interface_index, const CmAddress& neighbour) {
  const std::string_view bytes(reinterpret_cast<const char*>(neighbour.address), sizeof neighbour.address);
  return std::hash<std::string_view>()(bytes) ^ interface_index;
}

Neighbours::Ticket Neighbours::await(uint32_t interface_index, const CmAddress& neighbour, TimePoint deadline,
                                     Done done) {
  listen();
  const Ticket ticket = next_ticket_++;
  // A known neighbour is reported at once, but from the loop.
  if (routes_.knows_neighbour(interface_index, neighbour)) deadline = TimePoint{};
  const int verdict = deadline == TimePoint{} ? 0 : ETIMEDOUT;
  const auto timer = loop_.at(deadline, [this, ticket, verdict] { finish(ticket, verdict); });
  waiting_.emplace(ticket, Waiting{interface_index, neighbour, timer, std::move(done)});
  by_neighbour_.emplace(key_of(interface_index, neighbour), ticket);
  if (verdict != 0) {
    provoke(interface_index, neighbour);
    // On a netdev without hardware addresses, the neighbour is known now without a netlink message.
    if (routes_.knows_neighbour(interface_index, neighbour)) {
      loop_.later([this, interface_index, neighbour] { found(interface_index, neighbour); });
    }
  }
  return ticket;
}

void Neighbours::cancel(Ticket ticket) {
  const auto waiting = waiting_.find(ticket);
  if (waiting == waiting_.end()) return;
  loop_.cancel(waiting->second.timer);
  by_neighbour_.erase({key_of(waiting->second.interface_index, waiting->second.neighbour), ticket});
  waiting_.erase(waiting);
  if (waiting_.empty()) loop_.later([this] { stop_listening(); });
}

void Neighbours::finish(Ticket ticket, int error) {
  const auto waiting = waiting_.find(ticket);
  if (waiting == waiting_.end()) return;
  const Done done = std::move(waiting->second.done);
  cancel(ticket);
  done(error);
}

bool Neighbours::anyone_waits_for(uint32_t interface_index, const CmAddress& neighbour) const {
  const Key key = key_of(interface_index, neighbour);
  const auto first = by_neighbour_.lower_bound({key, 0});
  return first != by_neighbour_.end() && first->first == key;
}

void Neighbours::listen() {
  if (events_) return;
  events_.reset(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC));
  if (!events_ || mnl_socket_bind(events_.get(), RTMGRP_NEIGH, MNL_SOCKET_AUTOPID) < 0) {
    log_warning("neighbours cannot be watched: errno {}", errno);
    events_.reset();
    return;
  }
  loop_.watch(mnl_socket_get_fd(events_.get()), EPOLLIN, [this](uint32_t) { receive(); });
}

void Neighbours::stop_listening() {
  if (!events_ || !waiting_.empty()) return;
  loop_.forget(mnl_socket_get_fd(events_.get()));
  events_.reset();
}

void Neighbours::receive() {
  for (int i = 0; i < kDatagramsAtOnce; ++i) {
    alignas(nlmsghdr) char buffer[16 << 10];
    const ssize_t bytes = ::recv(mnl_socket_get_fd(events_.get()), buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == ENOBUFS) {
      ask_for_all();
      continue;
    }
    if (bytes <= 0) return;
    const auto on_message = [](const nlmsghdr* message, void* self) {
      auto& neighbours = *static_cast<Neighbours*>(self);
      const auto neighbour = read_neighbour(message);
      if (neighbour && neighbour->is_valid()) {
        neighbours.found(neighbour->interface_index, neighbour->address);
      } else if (neighbour && (neighbour->state & NUD_FAILED) != 0) {
        neighbours.provoke_again(neighbour->interface_index, neighbour->address);
      }
      return MNL_CB_OK;
    };
    mnl_cb_run(buffer, static_cast<size_t>(bytes), 0, 0, on_message, this);
  }
}

void Neighbours::found(uint32_t interface_index, const CmAddress& neighbour) {
  std::vector<Ticket> tickets;
  const Key key = key_of(interface_index, neighbour);
  for (auto entry = by_neighbour_.lower_bound({key, 0}); entry != by_neighbour_.end() && entry->first == key;
       ++entry) {
    const Waiting& waiting = waiting_.at(entry->second);
    const bool is_it =
        waiting.interface_index == interface_index && waiting.neighbour.family == neighbour.family &&
        std::memcmp(waiting.neighbour.address, neighbour.address, sizeof neighbour.address) == 0;
    if (!is_it) continue;
    if (tickets.size() == kAtOnce) {
      loop_.in_next_round([this, interface_index, neighbour] { found(interface_index, neighbour); });
      break;
    }
    tickets.push_back(entry->second);
  }
  for (const Ticket ticket : tickets) finish(ticket, 0);
}

// Looks at all known neighbours, after the netlink socket has overflowed. The kernel keeps one or two
// thousand, while any number of programs may wait.
void Neighbours::ask_for_all() {
  for (const NeighbourMessage& known : routes_.neighbours()) {
    if (known.is_valid()) found(known.interface_index, known.address);
  }
}

// Provokes another search after the kernel has given up, as long as any wait is pending: the neighbour may be
// booting.
void Neighbours::provoke_again(uint32_t interface_index, const CmAddress& neighbour) {
  if (!anyone_waits_for(interface_index, neighbour)) return;
  loop_.at(MonotonicClock::now() + kPause,
           [this, interface_index, neighbour] { provoke(interface_index, neighbour); });
}

void Neighbours::provoke(uint32_t interface_index, const CmAddress& neighbour) {
  if (!anyone_waits_for(interface_index, neighbour)) return;
  UniqueFd& socket = neighbour.family == AF_INET ? ipv4_ : ipv6_;
  if (!socket) socket = net::open_neighbour_search(neighbour.family == AF_INET);
  // rtnetlink reports the result.
  if (socket) net::search_neighbour(socket.get(), interface_index, gid_of(neighbour));
}

}  // namespace verbena::agent
