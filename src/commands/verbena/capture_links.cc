// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/capture_links.h"

#include <algorithm>
#include <chrono>

namespace verbena::commands {
namespace {

constexpr Duration kRefreshInterval = std::chrono::seconds(1);

}  // namespace

void CaptureLinks::refresh(TimePoint now) {
  if (now < next_refresh_) return;
  next_refresh_ = now + kRefreshInterval;
  owners_.clear();
  for (const control::Link& link : ask_()) {
    for (const control::GidEntry& entry : link.gids) {
      Owner& owner = owners_[entry.gid];
      if (owner.links.empty()) owner.mac = link.mac;
      owner.links.push_back(link.name);
    }
  }
}

const CaptureLinks::Owner* CaptureLinks::find(const roce::Address& address, TimePoint now) {
  auto found = owners_.find(address);
  if (found == owners_.end()) {
    refresh(now);
    found = owners_.find(address);
  }
  return found == owners_.end() ? nullptr : &found->second;
}

capture::MacAddress CaptureLinks::mac_of(const roce::Address& address, TimePoint now) {
  const Owner* const owner = find(address, now);
  return owner == nullptr ? capture::MacAddress{} : owner->mac;
}

bool CaptureLinks::is_on(const std::string& link, const roce::Path& path, TimePoint now) {
  return std::ranges::any_of(std::array{&path.source, &path.destination}, [&](const roce::Address* address) {
    const Owner* const owner = find(*address, now);
    return owner != nullptr && std::ranges::find(owner->links, link) != owner->links.end();
  });
}

}  // namespace verbena::commands
