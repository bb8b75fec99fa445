// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/link_directory.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "agent/cm/address.h"

namespace verbena::agent {

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
