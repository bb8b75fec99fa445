// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/neighbours.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "adapter/net/udp/route_check.h"
#include "base/log.h"

namespace verbena::agent {

bool NeighbourMessage::is_valid() const {
  constexpr uint16_t kValid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  return (state & kValid) != 0;
}

std::optional<NeighbourMessage> read_neighbour(const nlmsghdr* message) {
  if (message->nlmsg_type != RTM_NEWNEIGH || mnl_nlmsg_get_payload_len(message) < sizeof(ndmsg)) return {};
  const auto* header = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(message));
  if (header->ndm_family != AF_INET && header->ndm_family != AF_INET6) return {};
  NetlinkAttributes<NDA_MAX + 1> attributes;
  if (mnl_attr_parse(message, sizeof *header, attributes.collect, &attributes) < 0) return {};
  const nlattr* const destination = attributes[NDA_DST];
  const size_t bytes = header->ndm_family == AF_INET ? 4 : 16;
  if (destination == nullptr || mnl_attr_get_payload_len(destination) != bytes) return {};
  NeighbourMessage neighbour;
  neighbour.interface_index = static_cast<uint32_t>(header->ndm_ifindex);
  neighbour.address.family = header->ndm_family;
  std::memcpy(neighbour.address.address, mnl_attr_get_payload(destination), bytes);
  neighbour.state = header->ndm_state;
  return neighbour;
}

namespace {

// Number of waits for one neighbour that end per round of the loop: 131,072 identifiers may wait for it.
constexpr size_t kAtOnce = 64;
// Maximum number of datagrams of the kernel per round.
constexpr int kDatagramsAtOnce = 64;
constexpr Duration kPause = std::chrono::milliseconds(500);

}  // namespace

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
  auto socket = open_route_socket(RTMGRP_NEIGH);
  if (!socket) return log_warning("neighbours cannot be watched: errno {}", socket.error().code);
  events_ = std::move(*socket);
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
