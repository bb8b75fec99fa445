// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/port_space.h"

#include <algorithm>
#include <cerrno>

namespace verbena::agent {

Result<void> PortSpace::check(const Holders& holders, const PortBinding& holder, bool reuse_address) {
  for (const PortBinding* other : holders) {
    if (other == &holder || (reuse_address && other->reuse_address)) continue;
    const bool apart_by_family =
        holder.own_family_only && other->own_family_only && holder.source.family != other->source.family;
    if (apart_by_family) continue;
    if (is_any_address(holder.source) || is_any_address(other->source)) return fail(EADDRNOTAVAIL);
    if (is_same_host(holder.source, other->source)) return fail(EADDRINUSE);
  }
  return {};
}

// Two connections may share a local port if something else of their four addresses and ports differs.
bool PortSpace::is_unique(const Holders& holders, const PortBinding& holder) {
  const auto differ = [](const CmAddress& a, const CmAddress& b) {
    return has_known_family(a) && has_known_family(b) && !is_any_address(a) && !is_any_address(b) &&
           !is_same_host(a, b);
  };
  return std::all_of(holders.begin(), holders.end(), [&](const PortBinding* other) {
    const bool other_port = holder.destination.port != 0 && other->destination.port != 0 &&
                            holder.destination.port != other->destination.port;
    return other == &holder || other_port || differ(holder.source, other->source) ||
           differ(holder.destination, other->destination);
  });
}

Result<void> PortSpace::bind(PortBinding& holder) {
  const uint16_t port = port_of(holder.source);
  const auto found = ports_.find(port);
  if (found != ports_.end()) {
    if (const auto checked = check(found->second, holder, holder.reuse_address); !checked) return checked;
  }
  ports_[port].push_back(&holder);
  return {};
}

Result<void> PortSpace::resume(PortBinding& holder) {
  const auto found = ports_.find(port_of(holder.source));
  if (found == ports_.end() || !is_unique(found->second, holder)) return bind(holder);
  found->second.push_back(&holder);
  return {};
}

bool PortSpace::take(PortBinding& holder, uint16_t port) {
  const auto found = ports_.find(port);
  if (found != ports_.end() && !is_unique(found->second, holder)) return false;
  set_port(holder.source, port);
  ports_[port].push_back(&holder);
  last_ = port;
  return true;
}

Result<void> PortSpace::bind_any(PortBinding& holder, PortRange range, Random& random) {
  if (range.first > range.last) return fail(EADDRNOTAVAIL);
  const uint32_t count = range.last - range.first + 1u;
  const auto start = static_cast<uint32_t>(random.below(count));
  // The last one again only when there is no other: the peer may still know it from a connection that has
  // just gone.
  const uint16_t last = last_;
  for (uint32_t i = 0; i < count; ++i) {
    const auto port = static_cast<uint16_t>(range.first + (start + i) % count);
    if (port != last && take(holder, port)) return {};
  }
  if (last >= range.first && last <= range.last && take(holder, last)) return {};
  return fail(EADDRNOTAVAIL);
}

Result<void> PortSpace::claim(PortBinding& holder) const {
  if (!holder.reuse_address) return {};
  const auto found = ports_.find(port_of(holder.source));
  if (found != ports_.end()) {
    if (const auto checked = check(found->second, holder, false); !checked) return checked;
  }
  holder.reuse_address = false;
  return {};
}

void PortSpace::release(PortBinding& holder) {
  const auto found = ports_.find(port_of(holder.source));
  if (found == ports_.end()) return;
  Holders& holders = found->second;
  const auto at = std::find(holders.begin(), holders.end(), &holder);
  if (at == holders.end()) return;
  *at = holders.back();
  holders.pop_back();
  if (holders.empty()) ports_.erase(found);
}

PortBinding* PortSpace::find_listener(const CmAddress& destination, Origin origin) const {
  const auto found = ports_.find(port_of(destination));
  if (found == ports_.end()) return nullptr;
  PortBinding* best = nullptr;
  int best_rank = 0;
  for (PortBinding* holder : found->second) {
    const CmAddress& source = holder->source;
    if (!holder->listening || (is_loopback(source) && origin == Origin::kElsewhere)) continue;
    int rank = 0;
    if (is_same_host(source, destination)) {
      rank = 3;
    } else if (is_any_address(source) && source.family == destination.family) {
      rank = 2;
    } else if (is_any_address(source) && !holder->own_family_only) {
      rank = 1;
    }
    if (rank > best_rank) {
      best = holder;
      best_rank = rank;
    }
  }
  return best;
}

bool PortSpace::has_listener(uint16_t port, const std::function<bool(const PortBinding&)>& counts) const {
  const auto found = ports_.find(port);
  if (found == ports_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(),
                     [&](const PortBinding* holder) { return holder->listening && counts(*holder); });
}

}  // namespace verbena::agent
