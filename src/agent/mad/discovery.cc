// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/discovery.h"

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

// Whether the link can have neighbours. Loopback and links without a MAC address cannot.
bool has_network(const control::Link& link) {
  return link.up && std::ranges::any_of(link.mac, [](uint8_t byte) { return byte != 0; });
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

// The socket of one group on one link.
class Discovery::Listener final : private net::PacketHandler {
 public:
  Listener(Discovery& discovery, uint32_t device_index, const roce::Path& path, UniqueFd socket)
      : discovery_(discovery),
        device_index_(device_index),
        path_(path),
        receiver_(std::move(socket), discovery.port_, roce::kMulticastQpn.slot(), discovery.counters_) {
    discovery_.loop_.watch(receiver_.fd(), EPOLLIN,
                           [this](uint32_t) { receiver_.receive(*this, kMaxAtOnce); });
  }
  ~Listener() override { discovery_.loop_.forget(receiver_.fd()); }

  const roce::Path& path() const { return path_; }

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
  net::Receiver receiver_;
};

Discovery::Discovery(EventLoop& loop, LinkFabrics& fabrics, uint16_t port, CmService& cm, const Wire& wire)
    : loop_(loop), fabrics_(fabrics), port_(port), cm_(cm), wire_(wire), random_(draw_seed()) {}

Discovery::~Discovery() = default;

// Starts again on links whose addresses have changed.
void Discovery::links_changed() {
  if (!cm_.has_wire()) return;
  std::erase_if(places_, [&](const auto& entry) {
    const LinkFabric* fabric = fabrics_.find(entry.first);
    if (fabric == nullptr || !has_network(fabric->link)) return true;
    size_t wanted = 0;
    for (const roce::Address& group : {kIpv4Group, kIpv6Group}) {
      const auto path = path_to_group(fabric->link, group);
      if (!path) continue;
      ++wanted;
      const bool has = std::ranges::any_of(entry.second.listeners,
                                           [&](const auto& each) { return each->path() == *path; });
      if (!has) return true;
    }
    return wanted != entry.second.listeners.size();
  });
  for (const auto& [device, fabric] : fabrics_.all()) {
    if (has_network(fabric.link) && !places_.contains(device)) begin(device, fabric);
  }
  arm_timer();
}

void Discovery::begin(uint32_t device_index, const LinkFabric& fabric) {
  Place place;
  for (const roce::Address& group : {kIpv4Group, kIpv6Group}) {
    const auto path = path_to_group(fabric.link, group);
    if (!path) continue;
    auto socket = net::open_multicast_socket(group, fabric.link.interface_index, port_);
    if (!socket || !wire_.guard()(socket->get())) {
      log_info("the neighbours of {} are not looked for: its multicast group cannot be joined",
               fabric.link.name);
      continue;
    }
    place.listeners.push_back(std::make_unique<Listener>(*this, device_index, *path, std::move(*socket)));
  }
  if (place.listeners.empty()) return;
  place.next = MonotonicClock::now();
  fabrics_.settled = place.next + kSettling;
  places_.emplace(device_index, std::move(place));
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
  // Asks the first time even if others were heard: those need not be all.
  const bool asks = !place.knows_others || place.last == TimePoint();
  const mad::Mad said = mad::encode({fabric->subnet.own().adapter, asks});
  for (const auto& listener : place.listeners) cm_.gsi().send_to_group(said, listener->path());
  cm_.settle();
}

void Discovery::on_timer() {
  const TimePoint now = MonotonicClock::now();
  for (auto& [device, place] : places_) {
    if (place.next > now) continue;
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
