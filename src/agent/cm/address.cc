// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/address.h"

#include <functional>

#include <arpa/inet.h>

namespace verbena::agent {

namespace {

size_t length_of(const CmAddress& address) {
  return address.family == AF_INET ? 4 : 16;
}

}  // namespace

roce::Address gid_of(const CmAddress& address) {
  if (address.family == AF_INET) return roce::Address::from_ipv4(address.address);
  roce::Address gid;
  std::memcpy(gid.bytes.data(), address.address, gid.bytes.size());
  return gid;
}

CmAddress address_of(const roce::Address& gid, uint16_t port, uint32_t scope_id) {
  CmAddress address{};
  set_port(address, port);
  if (gid.is_ipv4()) {
    address.family = AF_INET;
    std::memcpy(address.address, gid.ipv4(), 4);
  } else {
    address.family = AF_INET6;
    std::memcpy(address.address, gid.bytes.data(), gid.bytes.size());
    if (gid.is_link_local()) address.scope_id = scope_id;
  }
  return address;
}

uint16_t port_of(const CmAddress& address) {
  return ntohs(address.port);
}

void set_port(CmAddress& address, uint16_t port) {
  address.port = htons(port);
}

bool is_wildcard(const CmAddress& address) {
  return std::all_of(address.address, address.address + length_of(address),
                     [](uint8_t byte) { return byte == 0; });
}

bool is_loopback(const CmAddress& address) {
  if (address.family == AF_INET) return address.address[0] == 127;
  return address.address[15] == 1 &&
         std::all_of(address.address, address.address + 15, [](uint8_t byte) { return byte == 0; });
}

bool is_any_address(const CmAddress& address) {
  return is_wildcard(address) || is_loopback(address);
}

bool is_link_local(const CmAddress& address) {
  return address.family == AF_INET6 && gid_of(address).is_link_local();
}

bool is_same_host(const CmAddress& a, const CmAddress& b) {
  if (a.family != b.family || std::memcmp(a.address, b.address, length_of(a)) != 0) return false;
  return !is_link_local(a) || a.scope_id == b.scope_id;
}

size_t LinkDirectory::Hash::operator()(const roce::Address& gid) const {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(gid.bytes.data()), gid.bytes.size()});
}

void LinkDirectory::update(std::vector<control::Link> links) {
  by_gid_.clear();
  by_device_.clear();
  links_ = std::move(links);
  for (const control::Link& link : links_) {
    by_device_[link.device_index] = &link;
    for (const control::GidEntry& entry : link.gids) by_gid_.emplace(entry.gid, Place{&link, entry.index});
  }
}

std::optional<LinkDirectory::Place> LinkDirectory::find(const roce::Address& gid,
                                                        uint32_t interface_index) const {
  std::optional<Place> found;
  const auto [begin, end] = by_gid_.equal_range(gid);
  for (auto place = begin; place != end; ++place) {
    const control::Link& link = *place->second.link;
    if (link.interface_index == interface_index) return place->second;
    const bool better = !found || link.device_index < found->link->device_index;
    if (better) found = place->second;
  }
  return found;
}

std::optional<LinkDirectory::Loopback> LinkDirectory::loopback(bool ipv4) const {
  std::optional<Loopback> best;
  int best_rank = 0;
  for (const control::Link& link : links_) {
    for (const control::GidEntry& entry : link.gids) {
      if (entry.gid.is_ipv4() != ipv4) continue;
      const int rank = is_loopback(address_of(entry.gid)) ? 4
                       : !link.up                         ? 1
                       : entry.gid.is_link_local()        ? 2
                                                          : 3;
      if (rank <= best_rank) continue;
      best = Loopback{&link, entry.gid};
      best_rank = rank;
    }
  }
  return best;
}

const control::Link* LinkDirectory::by_device(uint32_t device_index) const {
  const auto found = by_device_.find(device_index);
  return found == by_device_.end() ? nullptr : found->second;
}

}  // namespace verbena::agent
