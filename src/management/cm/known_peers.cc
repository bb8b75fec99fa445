// SPDX-License-Identifier: Apache-2.0
#include "management/cm/known_peers.h"

#include <algorithm>

namespace verbena::cm {

size_t KnownPeers::set_of(const roce::Address& peer) const {
  return (hash_({peer, 0}) & (kSets - 1)) * kWays;
}

const KnownPeers::Entry* KnownPeers::find(const roce::Address& peer) const {
  const Entry* const set = &entries_[set_of(peer)];
  const Entry* const found =
      std::find_if(set, set + kWays, [&](const Entry& entry) { return entry.peer == peer; });
  return found != set + kWays ? found : nullptr;
}

KnownPeers::Entry* KnownPeers::find_or_take(const roce::Address& peer, TimePoint now) {
  if (const Entry* found = find(peer)) return const_cast<Entry*>(found);
  Entry* const set = &entries_[set_of(peer)];
  Entry* const taken = std::find_if(set, set + kWays, [&](const Entry& entry) { return entry.is_free(now); });
  if (taken == set + kWays) return nullptr;
  *taken = {.peer = peer};
  return taken;
}

// If the set is full, evicts the entry that expires first: hosts that answered rank above those that did not,
// and above those silent for longer.
KnownPeers::Entry& KnownPeers::entry_of_known(const roce::Address& peer, TimePoint now) {
  Entry* entry = find_or_take(peer, now);
  if (entry == nullptr) {
    Entry* const set = &entries_[set_of(peer)];
    entry = std::min_element(set, set + kWays,
                             [](const Entry& a, const Entry& b) { return a.known_until < b.known_until; });
    *entry = {.peer = peer};
  }
  entry->known_until = now + kMemory;
  return *entry;
}

void KnownPeers::has_answered(const roce::Address& peer, TimePoint now) {
  entry_of_known(peer, now);
}

void KnownPeers::has_answered_from_roce_port(const roce::Address& peer, TimePoint now) {
  static_assert(kPortMemory <= kMemory);
  entry_of_known(peer, now).port_until = now + kPortMemory;
}

bool KnownPeers::has_roce_port(const roce::Address& peer, TimePoint now) const {
  const Entry* const entry = find(peer);
  return entry != nullptr && entry->port_until > now;
}

bool KnownPeers::knows(const roce::Address& peer, TimePoint now) const {
  const Entry* const entry = find(peer);
  return entry != nullptr && entry->known_until > now;
}

bool KnownPeers::may_send_unasked(const roce::Address& peer, TimePoint now) {
  if (knows(peer, now)) return true;
  Entry* const entry = find_or_take(peer, now);
  if (entry == nullptr || entry->next_unasked > now) return false;
  entry->next_unasked = now + kInterval;
  return true;
}

}  // namespace verbena::cm
