// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_table.h"

#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/log.h"
#include "management/mad/subnet.h"

namespace verbena::agent {
namespace {

using control::refuse;

// Returns the default GID as the kernel makes it: with the MAC address as EUI-64.
std::optional<roce::Address> default_gid_of(const Netdev& netdev) {
  if (netdev.mac == std::array<uint8_t, 6>{}) return std::nullopt;
  control::Link link;
  link.mac = netdev.mac;
  return mad::default_gid(load_be<uint64_t>(control::guid_of(link).data()));
}

// Larger than any number of devices that are ever created.
constexpr uint32_t kMaxDeviceIndex = 1u << 30;

bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() >= protocol::kLinkNameBytes || name == "." || name == "..") return false;
  return std::ranges::all_of(name, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '@';
  });
}

tl::unexpected<control::AdminError> refuse_name(std::string_view name) {
  return refuse(
      EINVAL, verbena::format("'{}' is no name for a link: up to 63 letters, digits and any of _-.:@", name));
}

tl::unexpected<control::AdminError> refuse_taken(std::string_view name) {
  return refuse(EEXIST,
                verbena::format("there is a link '{0}' already: choose another name, or delete it first: "
                                "verbena link del {0}",
                                name));
}

tl::unexpected<control::AdminError> refuse_unknown(std::string_view name) {
  return refuse(ENODEV, verbena::format("there is no link '{}'; 'verbena link show' lists them", name));
}

// Returns the network of an address. Nothing for a link-local address, or one that is alone in its network.
std::optional<roce::Prefix> network_of(const NetdevAddress& address) {
  constexpr uint8_t kAllBits = 128;
  const bool is_ipv4 = address.address.is_ipv4();
  const int bits = address.prefix + (is_ipv4 ? roce::Prefix::kIpv4Bits : 0);
  if (address.address.is_link_local() || bits >= kAllBits) return std::nullopt;
  const auto first = static_cast<uint8_t>(bits);
  return roce::Prefix{roce::first_bits(address.address, first), first};
}

}  // namespace

void LinkTable::netdev_changed(const Netdev& netdev) {
  KnownNetdev& known = netdevs_[netdev.index];
  known.netdev = netdev;
  known.present = known.seen = true;
  known.report = ++last_report_;
}

void LinkTable::netdev_removed(uint32_t interface_index) {
  netdevs_.erase(interface_index);
}

void LinkTable::address_changed(uint32_t interface_index, const NetdevAddress& address) {
  auto& addresses = netdevs_[interface_index].addresses;
  const auto found = std::ranges::find(addresses, address, &KnownAddress::address);
  if (found == addresses.end()) {
    addresses.push_back({address});
  } else {
    *found = {address};
  }
}

void LinkTable::address_removed(uint32_t interface_index, const NetdevAddress& address) {
  const auto netdev = netdevs_.find(interface_index);
  if (netdev == netdevs_.end()) return;
  std::erase_if(netdev->second.addresses,
                [&](const KnownAddress& known) { return known.address == address; });
}

void LinkTable::begin_dump() {
  for (auto& [index, known] : netdevs_) {
    known.seen = false;
    for (KnownAddress& address : known.addresses) address.seen = false;
  }
}

void LinkTable::end_dump() {
  std::erase_if(netdevs_, [](const auto& entry) { return !entry.second.seen; });
  for (auto& [index, known] : netdevs_) {
    std::erase_if(known.addresses, [](const KnownAddress& address) { return !address.seen; });
  }
}

std::vector<LinkTable::SpeedQuestion> LinkTable::speed_questions() const {
  std::vector<SpeedQuestion> questions;
  for (const auto& [index, known] : netdevs_) {
    if (known.report == known.answered_report) continue;
    if (has_link(index) || wants_automatic_link(known)) {
      questions.push_back({index, known.report, known.netdev.name});
    }
  }
  return questions;
}

bool LinkTable::set_speed(const SpeedQuestion& question, uint32_t speed) {
  const auto found = netdevs_.find(question.interface_index);
  if (found == netdevs_.end()) return false;
  found->second.answered_report = question.report;
  return std::exchange(found->second.speed, speed) != speed;
}

control::AdminResult<void> LinkTable::add_link(std::string_view name, std::string_view netdev) {
  if (!is_valid_name(name)) return refuse_name(name);
  const auto found = std::ranges::find_if(netdevs_, [&](const auto& entry) {
    return entry.second.present && entry.second.netdev.name == netdev;
  });
  if (found == netdevs_.end())
    return refuse(ENODEV, verbena::format("there is no netdev '{}'; 'ip link' lists them", netdev));
  auto& [interface_index, known] = *found;

  KnownLink* over = find_link_over(interface_index);
  KnownLink* named = find_link(name);
  if (named != nullptr && named != over) {
    return refuse_taken(name);
  }
  if (over != nullptr && !over->automatic) {
    return refuse(
        EEXIST,
        verbena::format("netdev '{0}' has the link '{1}' already; delete that first: verbena link del {1}",
                        netdev, over->name));
  }
  if (over != nullptr && named == over) {
    if (known.netdev.loopback) {  // an automatic link that is temporary, and shall stay now
      over->automatic = false;
      return {};
    }
    return refuse_taken(name);
  }
  known.link_deleted = false;
  if (over != nullptr) {
    over->name = name;
    over->automatic = false;
    return {};
  }
  // Adding a deleted automatic link only undoes the deletion. That of loopback would not always be there.
  if (name != automatic_name(known.netdev) || !wants_automatic_link(known) || known.netdev.loopback) {
    make_link(std::string(name), interface_index, false);
  }
  return {};
}

control::AdminResult<void> LinkTable::delete_link(std::string_view name) {
  KnownLink* link = find_link(name);
  if (link == nullptr) return refuse_unknown(name);
  netdevs_[link->interface_index].link_deleted = true;
  links_.erase(links_.begin() + (link - links_.data()));
  return {};
}

control::AdminResult<void> LinkTable::rename_link(std::string_view name, std::string_view new_name) {
  KnownLink* link = find_link(name);
  if (link == nullptr) return refuse_unknown(name);
  if (name == new_name) return {};
  if (!is_valid_name(new_name)) return refuse_name(new_name);
  if (find_link(new_name) != nullptr) {
    return refuse_taken(new_name);
  }
  link->name = new_name;
  link->automatic = false;
  return {};
}

control::AdminResult<void> LinkTable::set_peers(std::string_view name, std::vector<roce::Prefix> peers) {
  KnownLink* link = find_link(name);
  if (link == nullptr) return refuse_unknown(name);
  link->peers = std::move(peers);
  return {};
}

void LinkTable::restore(const control::LinkSnapshot& snapshot) {
  links_.clear();
  next_device_index_ = std::min(snapshot.next_device_index, kMaxDeviceIndex);
  for (const uint32_t interface_index : snapshot.deleted) {
    const auto found = netdevs_.find(interface_index);
    if (found != netdevs_.end()) found->second.link_deleted = true;
  }
  for (const control::Link& link : snapshot.links) {
    // The snapshot may be forged by a process that claims to have it from an agent.
    const bool is_sound =
        is_valid_name(link.name) && link.device_index < kMaxDeviceIndex &&
        std::ranges::find(links_, link.device_index, &KnownLink::device_index) == links_.end();
    if (!is_sound || find_link(link.name) != nullptr || find_link_over(link.interface_index) != nullptr)
      continue;
    KnownLink& known = links_.emplace_back();
    known.name = link.name;
    known.device_index = link.device_index;
    known.interface_index = link.interface_index;
    known.automatic = link.automatic;
    known.peers = link.peers;
    for (const control::GidEntry& entry : link.gids) known.gids.emplace(entry.index, entry.gid);
    const auto netdev = netdevs_.find(link.interface_index);
    const auto first = known.gids.find(0);
    known.first_is_taken = netdev != netdevs_.end() && first != known.gids.end() &&
                           first->second != default_gid_of(netdev->second.netdev);
    next_device_index_ = std::max(next_device_index_, link.device_index + 1);
  }
  drop_links_without_netdev();
}

void LinkTable::drop_links_without_netdev() {
  std::erase_if(links_, [&](const KnownLink& link) {
    const auto netdev = netdevs_.find(link.interface_index);
    return netdev == netdevs_.end() || !netdev->second.present;
  });
}

bool LinkTable::settle() {
  drop_links_without_netdev();
  make_automatic_links();
  settle_loopback();
  for (KnownLink& link : links_) settle_gids(link, netdevs_[link.interface_index]);

  control::LinkSnapshot now;
  now.generation = settled_.generation;
  now.next_device_index = next_device_index_;
  for (const auto& [index, known] : netdevs_) {
    if (known.link_deleted) now.deleted.push_back(index);
  }
  for (const KnownLink& link : links_) now.links.push_back(describe(link));
  // Sorts loopback last: programs that take the first device should get one that reaches other hosts.
  std::ranges::sort(now.links, [&](const control::Link& a, const control::Link& b) {
    const auto rank = [&](const control::Link& link) {
      return std::pair(netdevs_.at(link.interface_index).netdev.loopback, link.interface_index);
    };
    return rank(a) < rank(b);
  });
  if (now == settled_) return false;
  ++now.generation;
  settled_ = std::move(now);
  return true;
}

bool LinkTable::needs_no_neighbours(uint32_t interface_index) const {
  const auto found = netdevs_.find(interface_index);
  return found != netdevs_.end() && found->second.netdev.without_neighbours;
}

bool LinkTable::holds_user_changes() const {
  const auto is_users = [](const KnownLink& link) { return !link.automatic || !link.peers.empty(); };
  const auto is_deleted = [](const auto& entry) { return entry.second.link_deleted; };
  return std::ranges::any_of(links_, is_users) || std::ranges::any_of(netdevs_, is_deleted);
}

LinkTable::KnownLink* LinkTable::find_link(std::string_view name) {
  const auto found = std::ranges::find(links_, name, &KnownLink::name);
  return found == links_.end() ? nullptr : &*found;
}

LinkTable::KnownLink* LinkTable::find_link_over(uint32_t interface_index) {
  const auto found = std::ranges::find(links_, interface_index, &KnownLink::interface_index);
  return found == links_.end() ? nullptr : &*found;
}

bool LinkTable::has_link(uint32_t interface_index) const {
  return std::ranges::find(links_, interface_index, &KnownLink::interface_index) != links_.end();
}

LinkTable::KnownLink& LinkTable::make_link(std::string name, uint32_t interface_index, bool automatic) {
  KnownLink& link = links_.emplace_back();
  link.name = std::move(name);
  link.device_index = next_device_index_++;
  link.interface_index = interface_index;
  link.automatic = automatic;
  return link;
}

// Returns rxe_<netdev>, or rxe_if<index> if that is no valid link name or is taken. The kernel allows any
// netdev name without '/' and white space; a renamed netdev's link keeps its name.
std::string LinkTable::automatic_name(const Netdev& netdev) {
  std::string name = "rxe_" + netdev.name;
  const KnownLink* holder = find_link(name);
  const bool taken = holder != nullptr && holder->interface_index != netdev.index;
  if (is_valid_name(name) && !taken) return name;
  return verbena::format("rxe_if{}", netdev.index);
}

bool LinkTable::is_loopback(const KnownLink& link) const {
  const auto found = netdevs_.find(link.interface_index);
  return found != netdevs_.end() && found->second.netdev.loopback;
}

bool LinkTable::has_automatic_loopback() const {
  return std::ranges::any_of(links_,
                             [&](const KnownLink& link) { return link.automatic && is_loopback(link); });
}

bool LinkTable::wants_automatic_link(const KnownNetdev& known) const {
  const Netdev& netdev = known.netdev;
  if (!known.present || !netdev.up || netdev.enslaved || known.link_deleted || known.addresses.empty()) {
    return false;
  }
  if (!netdev.loopback) return true;
  return std::ranges::none_of(links_, [&](const KnownLink& link) {
    const Netdev& other = netdevs_.at(link.interface_index).netdev;
    return !other.loopback && other.up && other.carrier;
  });
}

void LinkTable::make_automatic_links() {
  for (const bool loopback : {false, true}) {  // whether loopback gets a link depends on the others
    for (const auto& [index, known] : netdevs_) {
      if (known.netdev.loopback != loopback || !wants_automatic_link(known)) continue;
      if (find_link_over(index) != nullptr) continue;
      std::string name = automatic_name(known.netdev);
      if (find_link(name) != nullptr) continue;  // another link has even the second choice
      make_link(std::move(name), index, true);
    }
  }
}

void LinkTable::settle_loopback() {
  if (keep_loopback_) return;
  std::erase_if(links_, [&](const KnownLink& link) {
    return link.automatic && is_loopback(link) && !wants_automatic_link(netdevs_.at(link.interface_index));
  });
}

void LinkTable::settle_default_gid(KnownLink& link, const KnownNetdev& known) {
  const auto wanted = default_gid_of(known.netdev);
  const auto first = link.gids.find(0);
  if (first == link.gids.end()) link.first_is_taken = false;
  if (!wanted || link.first_is_taken) return;
  std::erase_if(link.gids, [&](const auto& entry) { return entry.first != 0 && entry.second == *wanted; });
  link.gids[0] = *wanted;
}

void LinkTable::settle_gids(KnownLink& link, const KnownNetdev& known) {
  const auto default_gid = default_gid_of(known.netdev);
  const auto exists = [&](const roce::Address& address) {
    return address == default_gid || std::ranges::any_of(known.addresses, [&](const KnownAddress& entry) {
             return entry.address.address == address;
           });
  };
  std::erase_if(link.gids, [&](const auto& entry) { return !exists(entry.second); });
  settle_default_gid(link, known);

  std::vector<roce::Address> fresh;
  for (const KnownAddress& entry : known.addresses) {
    const roce::Address& address = entry.address.address;
    const bool placed =
        std::ranges::any_of(link.gids, [&](const auto& gid) { return gid.second == address; });
    if (!placed && std::ranges::find(fresh, address) == fresh.end()) fresh.push_back(address);
  }
  // Not std::ranges::stable_partition(): Clang 14 does not compile the std::ranges::subrange that it returns.
  std::stable_partition(fresh.begin(), fresh.end(),
                        [](const roce::Address& address) { return address.is_ipv4(); });
  uint32_t index = 0;
  for (const roce::Address& address : fresh) {
    while (link.gids.contains(index)) ++index;
    if (index >= control::kGidTableLength) {
      log_warning("link {}: the GID table is full", link.name);
      return;
    }
    link.gids.emplace(index, address);
  }
}

std::vector<uint32_t> LinkTable::failed_over(std::span<const control::Link> before) const {
  std::vector<uint32_t> devices;
  for (const control::Link& link : settled_.links) {
    const auto netdev = netdevs_.find(link.interface_index);
    const auto former = std::ranges::find(before, link.device_index, &control::Link::device_index);
    const bool is_bond = netdev != netdevs_.end() && netdev->second.netdev.bond;
    if (is_bond && former != before.end() && former->mac != link.mac) devices.push_back(link.device_index);
  }
  return devices;
}

control::Link LinkTable::describe(const KnownLink& link) const {
  const KnownNetdev& known = netdevs_.at(link.interface_index);
  control::Link described;
  described.name = link.name;
  described.device_index = link.device_index;
  described.netdev = known.netdev.name;
  described.interface_index = link.interface_index;
  described.mac = known.netdev.mac;
  described.mtu = known.netdev.mtu;
  described.speed = known.speed / 100 * 100;
  described.up = known.netdev.up && known.netdev.carrier;
  described.has_wire = has_wire_;
  described.automatic = link.automatic;
  described.peers = link.peers;
  for (const auto& [index, address] : link.gids) described.gids.push_back({index, address});
  for (const KnownAddress& entry : known.addresses) {
    const auto network = network_of(entry.address);
    if (network && std::ranges::find(described.networks, *network) == described.networks.end()) {
      described.networks.push_back(*network);
    }
  }
  return described;
}

}  // namespace verbena::agent
