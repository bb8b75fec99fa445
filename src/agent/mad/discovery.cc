// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/discovery.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "adapter/net/udp/multicast_socket.h"
#include "agent/own_process.h"

namespace verbena::agent {

namespace {

using control::Link;

// Whether both addresses are IPv4, both are link-local, or both are neither.
bool are_of_one_kind(const roce::Address& one, const roce::Address& other) {
  return one.is_ipv4() == other.is_ipv4() && one.is_link_local() == other.is_link_local();
}

using namespace std::chrono_literals;

constexpr Duration kInterval = 10s;
constexpr Duration kLeastInterval = 100ms;
constexpr Duration kLongestAnswer = 50ms;  // maximum random delay, so that not all agents answer at once
constexpr Duration kSettling = 300ms;
constexpr uint32_t kMaxAtOnce = 64;

// Multicast groups from the range for a site's own use (RFC 2365), and from the range without assignments
// (RFC 4291).
constexpr roce::Address kIpv4Group{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 255, 86, 66}};
constexpr roce::Address kIpv6Group{{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'V', 'E', 'R', 'B'}};

// Returns the path from a link to a group. Its source is an address that every host of the network can
// answer.
std::optional<roce::Path> path_to_group(const control::Link& link, const roce::Address& group) {
  const auto from = std::ranges::find_if(link.gids, [&](const auto& entry) {
    return group.is_ipv4() ? entry.gid.is_ipv4() : entry.gid.is_link_local();
  });
  if (from == link.gids.end()) return std::nullopt;
  roce::Path path;
  path.source = from->gid;
  path.destination = group;
  path.interface_index = link.interface_index;
  path.hop_limit = 1;
  return path;
}

// Returns the paths to the groups that the link can reach.
std::vector<roce::Path> paths_to_groups(const control::Link& link) {
  std::vector<roce::Path> paths;
  for (const roce::Address& group : {kIpv4Group, kIpv6Group}) {
    if (const auto path = path_to_group(link, group)) paths.push_back(*path);
  }
  return paths;
}

// Whether the link can have neighbours. Loopback and links without a MAC address cannot.
bool has_network(const control::Link& link) {
  return std::ranges::any_of(link.mac, [](uint8_t byte) { return byte != 0; });
}

}  // namespace

std::optional<roce::Path> LinkFabric::path_to(const roce::Address& destination) const {
  for (const auto& entry : link.gids) {
    if (!are_of_one_kind(entry.gid, destination)) continue;
    roce::Path path;
    path.source = entry.gid;
    path.destination = destination;
    path.interface_index = link.interface_index;
    return path;
  }
  return std::nullopt;
}

mad::Adapter adapter_of(const Link& link, const std::string& host) {
  mad::Adapter adapter;
  adapter.guid = load_be<uint64_t>(control::guid_of(link).data());
  adapter.description = verbena::format("{} {}", host, link.name).substr(0, mad::kMaxDescriptionBytes);
  adapter.megabits = link.speed;
  adapter.path_mtu = control::path_mtu_of(link.mtu);
  adapter.up = link.is_active();
  adapter.network = mad::network_of(link.networks);
  return adapter;
}

mad::PortCounters port_counters_of(const control::DeviceCounters& counters) {
  constexpr uint64_t kBytesOfWord = 4;
  mad::PortCounters port;
  port.sent_words = counters[transport::kSentOctets] / kBytesOfWord;
  port.received_words = counters[transport::kReceivedOctets] / kBytesOfWord;
  port.sent_packets = counters[transport::kSentPackets];
  port.received_packets = counters[transport::kReceivedPackets];
  port.multicast_sent = counters[transport::kMulticastSent];
  port.multicast_received = counters[transport::kMulticastReceived];
  port.unicast_sent = control::rest_of(port.sent_packets, port.multicast_sent);
  port.unicast_received = control::rest_of(port.received_packets, port.multicast_received);
  port.link_downed = counters.link_downed;
  return port;
}

void LinkFabrics::links_changed(const std::vector<Link>& links) {
  std::erase_if(fabrics_, [&](const auto& entry) {
    return std::ranges::find(links, entry.first, &Link::device_index) == links.end();
  });
  for (const Link& link : links) {
    mad::Adapter adapter = adapter_of(link, host_);
    const auto known = fabrics_.find(link.device_index);
    if (known == fabrics_.end()) {
      fabrics_.emplace(link.device_index, LinkFabric{link, mad::Subnet(std::move(adapter))});
      continue;
    }
    known->second.link = link;
    known->second.subnet.change_own(std::move(adapter));
  }
}

LinkFabric* LinkFabrics::find(uint32_t device_index) {
  const auto found = fabrics_.find(device_index);
  return found != fabrics_.end() ? &found->second : nullptr;
}

// The membership in one group on one link.
class Discovery::Listener final : private net::PacketHandler {
 public:
  Listener(Discovery& discovery, uint32_t device_index, const roce::Path& path)
      : discovery_(discovery), device_index_(device_index), path_(path) {}
  ~Listener() override {
    if (receiver_) discovery_.loop_.forget(receiver_->fd());
  }

  // Receives from a socket that has joined the group.
  Result<void> listen(ForeignCloser::SharedFd socket) {
    UniqueFd copy(::fcntl(socket->get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return fail(errno);
    auto receiver = std::make_unique<net::Receiver>(std::move(copy), discovery_.port_,
                                                    roce::kMulticastQpn.slot(), discovery_.counters_);
    discovery_.loop_.watch(receiver->fd(), EPOLLIN,
                           [this](uint32_t) { receiver_->receive(*this, kMaxAtOnce); });
    socket_ = std::move(socket);
    receiver_ = std::move(receiver);
    return {};
  }
  bool listens() const { return receiver_ != nullptr; }

  uint32_t device_index() const { return device_index_; }
  const roce::Path& path() const { return path_; }
  bool is_joining = false;

 private:
  void on_packet(const transport::IncomingPacket& incoming) override {
    const roce::Headers& headers = incoming.packet.headers;
    mad::Mad mad;
    const bool can_be = headers.opcode == roce::kUdSendOnlyOpcode && headers.qkey == cm::kGsiQkey &&
                        incoming.packet.payload.size() == mad.bytes.size() &&
                        incoming.path.interface_index == path_.interface_index &&
                        !incoming.path.source.is_multicast() && is_of_an_agent(incoming);
    if (!can_be) return;
    std::ranges::copy(incoming.packet.payload, mad.bytes.begin());
    if (const auto said = mad::decode_announcement(mad)) {
      discovery_.on_announcement(device_index_, *said, incoming.path.source);
    }
  }

  // Only agents can send from the port.
  bool is_of_an_agent(const transport::IncomingPacket& incoming) const {
    return incoming.source_port == discovery_.port_;
  }

  Discovery& discovery_;
  const uint32_t device_index_;
  const roce::Path path_;
  // The socket is closed last, by a thread: the last close leaves the group. The receiver has a copy.
  ForeignCloser::SharedFd socket_;
  std::unique_ptr<net::Receiver> receiver_;
};

Discovery::Discovery(EventLoop& loop, LinkFabrics& fabrics, uint16_t port, CmService& cm, const Wire& wire,
                     ForeignCloser& closer)
    : loop_(loop),
      fabrics_(fabrics),
      port_(port),
      cm_(cm),
      wire_(wire),
      closer_(closer),
      random_(draw_seed()) {}

Discovery::~Discovery() = default;

void Discovery::links_changed() {
  if (!cm_.has_wire()) return;
  std::erase_if(places_, [&](const auto& entry) {
    const LinkFabric* fabric = fabrics_.find(entry.first);
    return fabric == nullptr || !has_network(fabric->link);
  });
  for (const auto& [device, fabric] : fabrics_.all()) {
    if (has_network(fabric.link)) link_changed(device, fabric.link);
  }
  arm_timer();
}

void Discovery::link_changed(uint32_t device_index, const Link& link) {
  Place& place = places_[device_index];
  const auto wanted = paths_to_groups(link);
  std::erase_if(place.listeners,
                [&](const auto& each) { return std::ranges::find(wanted, each->path()) == wanted.end(); });
  for (const roce::Path& path : wanted) {
    const bool has =
        std::ranges::any_of(place.listeners, [&](const auto& each) { return each->path() == path; });
    if (has) continue;
    place.listeners.push_back(std::make_shared<Listener>(*this, device_index, path));
    if (link.up && place.last == TimePoint()) fabrics_.settled = MonotonicClock::now() + kSettling;
  }
  const bool was_up = std::exchange(place.is_up, link.up);
  if (!link.up) return;
  if (!was_up && std::ranges::any_of(place.listeners, &Listener::listens)) announce_soon(place);
  for (const auto& listener : place.listeners) join(listener, link.name);
}

void Discovery::join(const std::shared_ptr<Listener>& listener, const std::string& link) {
  if (listener->listens() || listener->is_joining) return;
  const auto open = [path = listener->path(), port = port_, guard = wire_.guard()]() -> Result<UniqueFd> {
    auto socket = net::open_multicast_socket(path.destination, path.interface_index, port);
    if (socket && !guard(socket->get())) return fail(errno);
    return socket;
  };
  const auto then = [this, link, joining = std::weak_ptr(listener)](auto socket) {
    const auto known = joining.lock();  // null if the link has gone meanwhile
    if (known) end_join(*known, link, std::move(socket));
  };
  closer_.open(::geteuid(), open, then);
  listener->is_joining = true;
}

void Discovery::end_join(Listener& listener, const std::string& link,
                         Result<ForeignCloser::SharedFd> socket) {
  listener.is_joining = false;
  if (!socket || !listener.listen(std::move(*socket))) {
    log_info("the neighbours of {} are not looked for: its multicast group cannot be joined", link);
    return;
  }
  announce_soon(places_.at(listener.device_index()));
  arm_timer();
}

// Datagrams of programs wait for the answers after a long silence only: a link that loses its carrier again
// and again delays none.
void Discovery::announce_soon(Place& place) {
  const TimePoint now = MonotonicClock::now();
  if (place.last == TimePoint() || now - place.last >= kInterval) fabrics_.settled = now + kSettling;
  place.asks = true;
  place.next = std::max(now, place.last + kLeastInterval);
}

void Discovery::on_announcement(uint32_t device_index, const mad::Announcement& announcement,
                                const roce::Address& from) {
  LinkFabric* fabric = fabrics_.find(device_index);
  const auto place = places_.find(device_index);
  if (fabric == nullptr || place == places_.end()) return;
  const uint64_t own = fabric->subnet.own().adapter.guid;
  if (announcement.adapter.guid == own) return;  // the agent's own announcement, looped back
  const TimePoint now = MonotonicClock::now();
  fabric->subnet.hear(announcement.adapter, from, now);
  place->second.knows_others = true;
  if (!announcement.wants_answer) return;
  const auto chance = random_.below(static_cast<uint64_t>(kLongestAnswer.count()));
  const TimePoint answer = std::max(now + Duration(chance), place->second.last + kLeastInterval);
  place->second.next = std::min(place->second.next, answer);
  arm_timer();
}

void Discovery::announce(uint32_t device_index, Place& place) {
  const LinkFabric* fabric = fabrics_.find(device_index);
  if (fabric == nullptr) return;
  const bool asks = std::exchange(place.asks, false) || !place.knows_others;
  const mad::Mad said = mad::encode({fabric->subnet.own().adapter, asks});
  for (const auto& listener : place.listeners) {
    if (listener->listens()) cm_.gsi().send_to_group(said, listener->path());
  }
  cm_.settle();
}

void Discovery::on_timer() {
  const TimePoint now = MonotonicClock::now();
  for (auto& [device, place] : places_) {
    if (place.next > now) continue;
    if (!place.is_up) {
      place.next = kNever;
      continue;
    }
    announce(device, place);
    const auto chance = random_.below(static_cast<uint64_t>(kInterval.count()) / 4);
    place.last = now;
    place.next = now + kInterval - Duration(chance);
  }
  arm_timer();
}

void Discovery::arm_timer() {
  TimePoint next = kNever;
  for (const auto& [device, place] : places_) next = std::min(next, place.next);
  timer_.arm(next);
}

}  // namespace verbena::agent
