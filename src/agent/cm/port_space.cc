// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/port_space.h"

#include <fstream>

namespace verbena::agent {

namespace {

constexpr Duration kLifespan = std::chrono::seconds(1);

bool has_gone(const PortBinding* holder) {
  return holder->owner != nullptr && holder->owner->has_gone;
}

}  // namespace

const PortLimits& PortLimitsReader::read() {
  const TimePoint now = MonotonicClock::now();
  if (read_at_ != TimePoint{} && now - read_at_ < kLifespan) return limits_;
  read_at_ = now;
  uint32_t first = 0;
  uint32_t last = 0;
  if (std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last && first >= 1 &&
      first <= last && last <= 65535) {
    limits_.ephemeral = {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  }
  uint32_t start = 0;
  if (std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> start && start <= 65535) {
    limits_.first_unprivileged = static_cast<uint16_t>(start);
  }
  int only = 0;
  if (std::ifstream("/proc/sys/net/ipv6/bindv6only") >> only) limits_.ipv6_only = only != 0;
  return limits_;
}

Result<void> PortSpace::check(const Holders& holders, const PortBinding& holder, bool reuse_address) {
  for (const PortBinding* other : holders) {
    if (other == &holder || has_gone(other) || (reuse_address && other->reuse_address)) continue;
    const bool apart_by_family =
        holder.own_family_only && other->own_family_only && holder.source.family != other->source.family;
    if (apart_by_family) continue;
    if (is_any_address(holder.source) || is_any_address(other->source)) return fail(EADDRNOTAVAIL);
    if (is_same_host(holder.source, other->source)) return fail(EADDRINUSE);
  }
  return {};
}

bool meet(const PortBinding& a, const PortBinding& b) {
  const auto overlap = [](const CmAddress& x, const CmAddress& y) {
    return !has_known_family(x) || !has_known_family(y) || is_any_address(x) || is_any_address(y) ||
           is_same_host(x, y);
  };
  const bool other_port =
      a.destination.port != 0 && b.destination.port != 0 && a.destination.port != b.destination.port;
  return !other_port && overlap(a.source, b.source) && overlap(a.destination, b.destination);
}

// Whether the holder's connection differs from all others of the port in an address or a port.
bool PortSpace::is_unique(const Holders& holders, const PortBinding& holder) {
  return std::ranges::none_of(holders, [&](const PortBinding* other) {
    return other != &holder && !has_gone(other) && meet(holder, *other);
  });
}

bool PortSpace::allows_more(const PortBinding& holder, PortRange ephemeral) {
  if (ephemeral.first > ephemeral.last) return true;
  const size_t all = ephemeral.last - ephemeral.first + 1u;
  shares_.resize(Quota::Size::of(all));
  // Root and the agent's own user are not protected from each other.
  return shares_.is_trusted(holder.user) || shares_.allows(holder.user);
}

bool PortSpace::allows_port(const Holders* holders, const PortBinding& holder, PortRange ephemeral) {
  const uint16_t port = port_of(holder.source);
  const bool is_ephemeral = port >= ephemeral.first && port <= ephemeral.last;
  const bool is_held = holders != nullptr && holds(*holders, holder.user);
  return !is_ephemeral || is_held || allows_more(holder, ephemeral);
}

bool PortSpace::holds(const Holders& holders, uid_t user) {
  return std::ranges::find(holders, user, &PortBinding::user) != holders.end();
}

bool PortSpace::is_full(const Holders& holders) {
  return holders.size() >= kMaxHolders &&
         holders.size() - static_cast<size_t>(std::ranges::count_if(holders, has_gone)) >= kMaxHolders;
}

// Adds the holder. A port counts once for each user that holds it, however many identifiers the user has
// there.
void PortSpace::add(Holders& holders, PortBinding& holder, PortRange ephemeral) {
  const uint16_t port = port_of(holder.source);
  const bool is_ephemeral = port >= ephemeral.first && port <= ephemeral.last;
  holder.is_counted = is_ephemeral && !holds(holders, holder.user);
  if (holder.is_counted) shares_.take(holder.user);
  holders.push_back(&holder);
}

const PortSpace::Holders* PortSpace::holders_of(uint16_t port) const {
  const auto found = ports_.find(port);
  return found == ports_.end() ? nullptr : &found->second.holders;
}

Result<void> PortSpace::bind(PortBinding& holder, PortRange ephemeral) {
  const uint16_t port = port_of(holder.source);
  const Holders* const holders = holders_of(port);
  if (holders != nullptr) {
    if (is_full(*holders)) return fail(EADDRNOTAVAIL);
    if (const auto checked = check(*holders, holder, holder.reuse_address); !checked) return checked;
  }
  if (!allows_port(holders, holder, ephemeral)) return fail(EADDRNOTAVAIL);
  add(ports_[port].holders, holder, ephemeral);
  return {};
}

Result<void> PortSpace::resume(PortBinding& holder, PortRange ephemeral, Share share) {
  const auto found = ports_.find(port_of(holder.source));
  if (found == ports_.end() || !is_unique(found->second.holders, holder)) return bind(holder, ephemeral);
  if (is_full(found->second.holders)) return fail(EADDRNOTAVAIL);
  const bool has_share = share == Share::kGranted || allows_port(&found->second.holders, holder, ephemeral);
  if (!has_share) return fail(EADDRNOTAVAIL);
  add(found->second.holders, holder, ephemeral);
  return {};
}

Result<void> PortSpace::bind_any(PortBinding& holder, PortRange range, Random& random) {
  if (range.first > range.last) return fail(EADDRNOTAVAIL);
  const bool may_have_more = allows_more(holder, range);
  const auto take = [&](uint16_t port) {
    const Holders* const holders = holders_of(port);
    const bool is_held = holders != nullptr && holds(*holders, holder.user);
    if (!may_have_more && !is_held) return false;
    if (holders != nullptr && (is_full(*holders) || !is_unique(*holders, holder))) return false;
    set_port(holder.source, port);
    add(ports_[port].holders, holder, range);
    last_ = port;
    return true;
  };
  const uint32_t count = range.last - range.first + 1u;
  const auto start = static_cast<uint32_t>(random.below(count));
  // Tries the last port only after all others: the peer may still know it from a connection that has just
  // ended.
  const uint16_t last = last_;
  for (uint32_t i = 0; i < count; ++i) {
    const auto port = static_cast<uint16_t>(range.first + (start + i) % count);
    if (port != last && take(port)) return {};
  }
  if (last >= range.first && last <= range.last && take(last)) return {};
  return fail(EADDRNOTAVAIL);
}

Result<void> PortSpace::listen(PortBinding& holder) {
  Port& port = ports_[port_of(holder.source)];
  if (holder.reuse_address) {
    if (const auto checked = check(port.holders, holder, false); !checked) return checked;
  }
  // Another listener at this address can only be one whose client has gone.
  std::erase_if(port.listeners, has_gone);
  port.listeners.push_back(&holder);
  holder.reuse_address = false;
  holder.listening = true;
  return {};
}

void PortSpace::stop_listening(PortBinding& holder) {
  if (!std::exchange(holder.listening, false)) return;
  const auto found = ports_.find(port_of(holder.source));
  if (found != ports_.end()) std::erase(found->second.listeners, &holder);
}

void PortSpace::release(PortBinding& holder) {
  stop_listening(holder);
  const auto found = ports_.find(port_of(holder.source));
  if (found == ports_.end()) return;
  Holders& holders = found->second.holders;
  const auto at = std::ranges::find(holders, &holder);
  if (at == holders.end()) return;
  *at = holders.back();
  holders.pop_back();
  if (std::exchange(holder.is_counted, false)) {
    const auto heir = std::ranges::find(holders, holder.user, &PortBinding::user);
    if (heir != holders.end()) {
      (*heir)->is_counted = true;
    } else {
      shares_.give_back(holder.user);
    }
  }
  if (holders.empty()) ports_.erase(found);
}

PortBinding* PortSpace::find_listener(const CmAddress& destination, Origin origin) const {
  const auto found = ports_.find(port_of(destination));
  if (found == ports_.end()) return nullptr;
  PortBinding* best = nullptr;
  int best_rank = 0;
  for (PortBinding* holder : found->second.listeners) {
    const CmAddress& source = holder->source;
    if (has_gone(holder) || (is_loopback(source) && origin == Origin::kElsewhere)) continue;
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
  return std::ranges::any_of(found->second.listeners,
                             [&](const PortBinding* holder) { return !has_gone(holder) && counts(*holder); });
}

}  // namespace verbena::agent
