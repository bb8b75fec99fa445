// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/routes.h"

#include <cstdio>
#include <utility>

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/utsname.h>

namespace verbena::agent {

namespace {

constexpr size_t kRequestBytes = 256;
constexpr size_t kAnswerBytes = 8192;
// Number of waits for one neighbour whose ends are queued per round of the loop: 131,072 identifiers may wait
// for it.
constexpr size_t kAtOnce = 64;
// Maximum number of datagrams of the kernel per round.
constexpr int kDatagramsAtOnce = 64;
constexpr Duration kPause = std::chrono::milliseconds(500);

// Whether the kernel takes RTNL to answer RTM_GETNEIGH, as it does before Linux 6.13.
bool asks_under_rtnl() {
  static constexpr std::pair kWithout{6, 13};
  static const bool before = [] {
    utsname kernel{};
    std::pair<int, int> version;
    return ::uname(&kernel) == 0 &&
           std::sscanf(kernel.release, "%d.%d", &version.first, &version.second) == 2 && version < kWithout;
  }();
  return before;
}

uint8_t address_bytes(const CmAddress& address) {
  return address.family == AF_INET ? 4 : 16;
}

using Attributes = NetlinkAttributes<RTA_MAX + 1>;

CmAddress read_address(uint16_t family, const void* bytes, size_t length, uint32_t interface_index) {
  CmAddress address{};
  if (length != (family == AF_INET ? 4u : 16u)) return address;
  address.family = family;
  std::memcpy(address.address, bytes, length);
  if (is_link_local(address)) address.scope_id = interface_index;
  return address;
}

CmAddress read_address(uint16_t family, const nlattr* attribute, uint32_t interface_index) {
  if (attribute == nullptr) return {};
  return read_address(family, mnl_attr_get_payload(attribute), mnl_attr_get_payload_len(attribute),
                      interface_index);
}

// Returns the gateway, which may be of the other family (RFC 5549).
CmAddress gateway_of(const Attributes& route, uint16_t family, uint32_t interface_index) {
  if (route[RTA_GATEWAY] != nullptr) {
    return read_address(family, route[RTA_GATEWAY], interface_index);
  }
  const nlattr* via = route[RTA_VIA];
  if (via == nullptr || mnl_attr_get_payload_len(via) < sizeof(rtvia)) return {};
  const auto* header = static_cast<const rtvia*>(mnl_attr_get_payload(via));
  return read_address(header->rtvia_family, header->rtvia_addr, mnl_attr_get_payload_len(via) - sizeof(rtvia),
                      interface_index);
}

int read_hop_limit(const nlattr* metric, void* hop_limit) {
  if (mnl_attr_get_type(metric) == RTAX_HOPLIMIT && mnl_attr_validate(metric, MNL_TYPE_U32) == 0) {
    const uint32_t value = mnl_attr_get_u32(metric);
    if (value >= 1 && value <= 255) *static_cast<uint8_t*>(hop_limit) = static_cast<uint8_t>(value);
  }
  return MNL_CB_OK;
}

struct RouteReader {
  const RouteQuestion& question;
  RouteAnswer answer;
  int error = EPROTO;

  static int on_message(const nlmsghdr* message, void* self) {
    static_cast<RouteReader*>(self)->read(message);
    return MNL_CB_OK;
  }

  void read(const nlmsghdr* message) {
    if (message->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(message) < sizeof(rtmsg)) return;
    const auto* header = static_cast<const rtmsg*>(mnl_nlmsg_get_payload(message));
    Attributes route;
    if (mnl_attr_parse(message, sizeof *header, Attributes::collect, &route) < 0) return;
    const nlattr* output = route[RTA_OIF];
    if (output == nullptr || mnl_attr_validate(output, MNL_TYPE_U32) < 0) return;
    answer.interface_index = mnl_attr_get_u32(output);
    const uint16_t family = question.destination.family;
    answer.source = read_address(family, route[RTA_PREFSRC], answer.interface_index);
    const bool asked_from = question.source.family == family && !is_wildcard(question.source);
    if (asked_from) {
      answer.source = question.source;
      answer.source.port = 0;
    }
    if (!has_known_family(answer.source)) return;
    if (const nlattr* metrics = route[RTA_METRICS]; metrics != nullptr) {
      mnl_attr_parse_nested(metrics, read_hop_limit, &answer.hop_limit);
    }
    error = read_kind(*header, gateway_of(route, family, answer.interface_index));
  }

  int read_kind(const rtmsg& header, const CmAddress& gateway) {
    const CmAddress& destination = question.destination;
    switch (header.rtm_type) {
      case RTN_LOCAL:
        answer.is_local = true;
        return 0;
      case RTN_UNICAST:
        if (destination.family == AF_INET6 && destination.address[0] == 0xff) return 0;
        answer.next_hop = has_known_family(gateway) ? gateway : destination;
        answer.next_hop.port = 0;
        return 0;
      case RTN_MULTICAST:
      case RTN_ANYCAST:
        return 0;
      case RTN_BROADCAST:  // RDMA does not broadcast
        return ENETUNREACH;
      case RTN_PROHIBIT:
        return EACCES;
      default:
        return EHOSTUNREACH;
    }
  }
};

void put_address(nlmsghdr* message, uint16_t type, const CmAddress& address) {
  mnl_attr_put(message, type, address_bytes(address), address.address);
}

// Sends a request and reads the answer without waiting. The kernel handles the request during the send call,
// so the answer is there already.
Result<void> exchange(mnl_socket* socket, nlmsghdr* request, uint32_t sequence, mnl_cb_t reader, void* self) {
  request->nlmsg_seq = sequence;
  request->nlmsg_flags = NLM_F_REQUEST;
  if (mnl_socket_sendto(socket, request, request->nlmsg_len) < 0) return fail(errno);
  for (;;) {
    alignas(nlmsghdr) char buffer[kAnswerBytes];
    const ssize_t bytes = ::recv(mnl_socket_get_fd(socket), buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return fail(errno);
    const auto* first = reinterpret_cast<const nlmsghdr*>(buffer);
    const bool is_ours = static_cast<size_t>(bytes) >= sizeof *first && first->nlmsg_seq == sequence;
    if (!is_ours) continue;  // answer to an earlier request that was not read
    const int run =
        mnl_cb_run(buffer, static_cast<size_t>(bytes), sequence, mnl_socket_get_portid(socket), reader, self);
    if (run == MNL_CB_ERROR) return fail(errno);
    return {};
  }
}

}  // namespace

Result<RouteQuery> RouteQuery::open() {
  return open(asks_under_rtnl() ? NeighbourQuery::kByDatagram : NeighbourQuery::kByNetlink);
}

Result<RouteQuery> RouteQuery::open(NeighbourQuery how) {
  auto socket = open_route_socket(0);
  if (!socket) return fail(socket.error().code);
  return RouteQuery(std::move(*socket), how);
}

Result<RouteAnswer> RouteQuery::ask(const RouteQuestion& question) {
  alignas(nlmsghdr) char buffer[kRequestBytes];
  nlmsghdr* request = mnl_nlmsg_put_header(buffer);
  request->nlmsg_type = RTM_GETROUTE;
  auto* route = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(request, sizeof(rtmsg)));
  const CmAddress& destination = question.destination;
  route->rtm_family = static_cast<uint8_t>(destination.family);
  route->rtm_dst_len = static_cast<uint8_t>(8 * address_bytes(destination));
  // The kernel's route lookup needs the type of service without the ECN bits.
  route->rtm_tos = destination.family == AF_INET ? question.type_of_service & 0x1c : 0;
  put_address(request, RTA_DST, destination);
  if (question.source.family == destination.family && !is_wildcard(question.source)) {
    route->rtm_src_len = route->rtm_dst_len;
    put_address(request, RTA_SRC, question.source);
  }
  if (question.interface_index != 0) mnl_attr_put_u32(request, RTA_OIF, question.interface_index);

  RouteReader reader{question, {}};
  const auto asked = exchange(socket_.get(), request, ++sequence_, RouteReader::on_message, &reader);
  if (!asked) return fail(asked.error().code);
  if (reader.error != 0) return fail(reader.error);
  return reader.answer;
}

// Does not ask netlink where no datagram can be sent: other users can bring that about.
bool RouteQuery::knows_neighbour(uint32_t interface_index, const CmAddress& neighbour) {
  if (how_ == NeighbourQuery::kByNetlink) return is_neighbour_valid(interface_index, neighbour);
  return searches_.is_known(interface_index, gid_of(neighbour)).value_or(false);
}

bool RouteQuery::is_neighbour_valid(uint32_t interface_index, const CmAddress& neighbour) {
  alignas(nlmsghdr) char buffer[kRequestBytes];
  nlmsghdr* request = mnl_nlmsg_put_header(buffer);
  request->nlmsg_type = RTM_GETNEIGH;
  auto* header = static_cast<ndmsg*>(mnl_nlmsg_put_extra_header(request, sizeof(ndmsg)));
  header->ndm_family = static_cast<uint8_t>(neighbour.family);
  header->ndm_ifindex = static_cast<int32_t>(interface_index);
  put_address(request, NDA_DST, neighbour);
  bool is_valid = false;
  const auto on_message = [](const nlmsghdr* message, void* self) {
    if (const auto known = read_neighbour(message)) *static_cast<bool*>(self) = known->is_valid();
    return MNL_CB_OK;
  };
  const auto asked = exchange(socket_.get(), request, ++sequence_, on_message, &is_valid);
  return asked && is_valid;
}

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

NeighbourKey key_of(uint32_t interface_index, const CmAddress& neighbour) {
  return {interface_index, neighbour.family, gid_of(neighbour).bytes};
}

Neighbours::Neighbours(EventLoop& loop, RouteQuery& routes, NeedsNone needs_none)
    : loop_(loop), routes_(routes), needs_none_(std::move(needs_none)) {
  auto socket = open_route_socket(RTMGRP_NEIGH);
  if (!socket) log_warning("neighbours cannot be watched: errno {}", socket.error().code);
  if (socket) events_ = std::move(*socket);
}

Neighbours::~Neighbours() {
  if (listens_) loop_.forget(mnl_socket_get_fd(events_.get()));
  for (const auto& [ticket, waiting] : waiting_) loop_.cancel(waiting.timer);
}

Neighbours::Ticket Neighbours::await(uid_t user, uint32_t interface_index, const CmAddress& neighbour,
                                     TimePoint deadline, Done done) {
  listen();
  const Ticket ticket = next_ticket_++;
  // A known neighbour is reported at once, but from the loop.
  if (is_known(interface_index, neighbour)) deadline = TimePoint{};
  const int verdict = deadline == TimePoint{} ? 0 : ETIMEDOUT;
  const auto timer = loop_.at_for(user, deadline, [this, ticket, verdict] { finish(ticket, verdict); });
  waiting_.emplace(ticket, Waiting{user, interface_index, neighbour, timer, std::move(done)});
  try {
    if (verdict != 0) {
      by_neighbour_.emplace(key_of(interface_index, neighbour), ticket);
      provoke(interface_index, neighbour);
      // The link table may not have a new netdev yet. If that has no hardware addresses, the kernel knows the
      // neighbour now, without a netlink message.
      if (is_known(interface_index, neighbour)) {
        loop_.later([this, interface_index, neighbour] { found(interface_index, neighbour); });
      }
    }
  } catch (const std::bad_alloc&) {
    cancel(ticket);  // the caller does not learn the ticket, and may be gone before `done` is called
    throw;
  }
  return ticket;
}

void Neighbours::cancel(Ticket ticket) {
  const auto waiting = waiting_.find(ticket);
  if (waiting == waiting_.end()) return;
  loop_.cancel(waiting->second.timer);
  by_neighbour_.erase({key_of(waiting->second.interface_index, waiting->second.neighbour), ticket});
  waiting_.erase(waiting);
  if (waiting_.empty()) stop_.queue();
}

void Neighbours::finish(Ticket ticket, int error) {
  const auto waiting = waiting_.find(ticket);
  if (waiting == waiting_.end()) return;
  const Done done = std::move(waiting->second.done);
  cancel(ticket);
  done(error);
}

const Neighbours::Waiting* Neighbours::newest_wait(const NeighbourKey& key) const {
  auto newest = by_neighbour_.upper_bound({key, next_ticket_});
  if (newest == by_neighbour_.begin() || (--newest)->first != key) return nullptr;
  return &waiting_.at(newest->second);
}

// Discards the events that came while nobody waited.
void Neighbours::listen() {
  if (listens_ || !events_) return;
  const int fd = mnl_socket_get_fd(events_.get());
  std::byte start[1];
  while (::recv(fd, start, sizeof start, MSG_DONTWAIT) >= 0 || errno == ENOBUFS) continue;
  loop_.watch(fd, EPOLLIN, [this](uint32_t) { receive(); });
  listens_ = true;
}

// An overflow would wake a loop that watches the socket without reading it.
void Neighbours::stop_listening() {
  if (!listens_ || !waiting_.empty()) return;
  loop_.forget(mnl_socket_get_fd(events_.get()));
  listens_ = false;
}

void Neighbours::receive() {
  for (int i = 0; i < kDatagramsAtOnce; ++i) {
    alignas(nlmsghdr) char buffer[16 << 10];
    const ssize_t bytes = ::recv(mnl_socket_get_fd(events_.get()), buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == ENOBUFS) {
      look_for_all();
      continue;
    }
    if (bytes <= 0) return;
    const auto on_message = [](const nlmsghdr* message, void* self) {
      auto& neighbours = *static_cast<Neighbours*>(self);
      const auto neighbour = read_neighbour(message);
      if (neighbour && neighbour->is_valid()) {
        neighbours.found(neighbour->interface_index, neighbour->address);
      } else if (neighbour && (neighbour->state & NUD_FAILED) != 0) {
        neighbours.look_again(key_of(neighbour->interface_index, neighbour->address), kPause);
      }
      return MNL_CB_OK;
    };
    mnl_cb_run(buffer, static_cast<size_t>(bytes), 0, 0, on_message, this);
  }
}

void Neighbours::found(uint32_t interface_index, const CmAddress& neighbour) {
  std::vector<Ticket> tickets;
  const NeighbourKey key = key_of(interface_index, neighbour);
  for (auto entry = by_neighbour_.lower_bound({key, 0}); entry != by_neighbour_.end() && entry->first == key;
       ++entry) {
    if (tickets.size() == kAtOnce) {
      loop_.in_next_round([this, interface_index, neighbour] { found(interface_index, neighbour); });
      break;
    }
    tickets.push_back(entry->second);
  }
  for (const Ticket ticket : tickets) {
    Waiting& waiting = waiting_.at(ticket);
    const auto timer = loop_.at_for(waiting.user, TimePoint{}, [this, ticket] { finish(ticket, 0); });
    loop_.cancel(std::exchange(waiting.timer, timer));
    by_neighbour_.erase({key, ticket});
  }
}

// Looks again for all neighbours that anybody waits for, after the netlink socket has overflowed. Any number
// of programs may wait, so this goes in pieces. Each look is in a turn of a user who waits. A dump of the
// kernel's neighbours would wait for RTNL before Linux 6.13.
void Neighbours::look_for_all() {
  if (!std::exchange(next_look_, NeighbourKey{})) look_for_some();
}

void Neighbours::look_for_some() {
  const NeighbourKey from = *std::exchange(next_look_, std::nullopt);  // also if memory runs out below
  auto next = by_neighbour_.lower_bound({from, 0});
  for (size_t i = 0; i < kAtOnce && next != by_neighbour_.end(); ++i) {
    const NeighbourKey key = next->first;
    look_again(key, Duration(0));
    next = by_neighbour_.upper_bound({key, next_ticket_});
  }
  if (next == by_neighbour_.end()) return;
  loop_.in_next_round([this] { look_for_some(); });
  next_look_ = next->first;
}

// Looks again after a pause, as long as any wait is pending: the neighbour may be booting. In a turn of the
// user who came last: one who pauses does not come.
void Neighbours::look_again(const NeighbourKey& key, Duration pause) {
  const Waiting* const wait = newest_wait(key);
  if (wait == nullptr) return;
  const std::pair pausing(key, wait->user);
  if (pausing_.contains(pausing)) return;
  const auto look = [this, pausing, interface_index = wait->interface_index, neighbour = wait->neighbour] {
    pausing_.erase(pausing);
    if (newest_wait(pausing.first) == nullptr) return;
    if (is_known(interface_index, neighbour)) return found(interface_index, neighbour);
    provoke(interface_index, neighbour);
  };
  loop_.at_for(wait->user, MonotonicClock::now() + pause, look);
  pausing_.insert(pausing);
}

// rtnetlink reports the result of the search.
void Neighbours::provoke(uint32_t interface_index, const CmAddress& neighbour) {
  if (newest_wait(key_of(interface_index, neighbour)) == nullptr) return;
  if (routes_.search(interface_index, neighbour) != 0) look_again(key_of(interface_index, neighbour), kPause);
}

}  // namespace verbena::agent
