// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// Which hosts have answered. Anybody can put anybody's address into a datagram, so an agent that lets one REQ
// be followed by many REPs does to the host of that address what the sender could not. A host that has said
// an ID of ours back has got what we sent, and is one that wants to talk. Until then it gets an answer for
// each datagram, and what a timer sends only now and then, however many connections seem to be its own. Not
// less: an RTU is sent once, and if it is lost nothing but another REP brings it again.
//
// A host that has done so from UDP port 4791 has a Verbena agent, which sends all its connection management.
// The host's users can send from other ports only, so messages from there are dropped for a while. Not
// forever: the host may be restarted with another system. A datagram from that port does not suffice: on a
// host with an adapter every user can send from it. So it has to be the first answer to a request of ours
// (Role::note_port_of_answer()), whose ID nobody but that host has got.
//
// The table is of bounded size: a host that is forgotten is a stranger again. Each connection remembers the
// port besides. One thread.
class KnownPeers {
 public:
  // How long a host is known that has answered.
  static constexpr Duration kMemory = std::chrono::minutes(10);
  // How long a host that has spoken from UDP port 4791 is not believed from other ports.
  static constexpr Duration kPortMemory = std::chrono::minutes(3);
  // How often a stranger gets what it has not asked for.
  static constexpr Duration kInterval = std::chrono::milliseconds(500);

  // Peers choose their addresses, so the hash is keyed.
  explicit KnownPeers(uint64_t secret) : secret_(secret), entries_(kSets * kWays) {}

  // It has named an ID of ours that it can have from a datagram of ours only.
  void has_answered(const roce::Address& peer, TimePoint now);
  bool knows(const roce::Address& peer, TimePoint now) const;
  // The same, and the datagram came from UDP port 4791.
  void has_answered_from_roce_port(const roce::Address& peer, TimePoint now);
  bool has_roce_port(const roce::Address& peer, TimePoint now) const;
  // Whether it may be sent now what no datagram of its own asks for. If so, that counts as done.
  bool may_send_unasked(const roce::Address& peer, TimePoint now);

 private:
  struct Entry {
    roce::Address peer;
    TimePoint known_until{};
    TimePoint next_unasked{};
    TimePoint port_until{};  // REQUIRES: not after known_until

    bool is_free(TimePoint now) const { return known_until <= now && next_unasked <= now; }
  };
  static constexpr size_t kSets = 1024;  // a power of two
  static constexpr size_t kWays = 4;

  size_t set_of(const roce::Address& peer) const;
  const Entry* find(const roce::Address& peer) const;
  // Null: all of its set are in use.
  Entry* find_or_take(const roce::Address& peer, TimePoint now);
  Entry& entry_of_known(const roce::Address& peer, TimePoint now);

  const uint64_t secret_;
  std::vector<Entry> entries_;
};

}  // namespace verbena::cm
