// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "management/cm/numbers.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// Remembers which hosts have answered us, and limits the datagrams to other hosts. Anybody can forge a source
// address. So if an agent sent many REPs for one REQ, it would amplify attacks on the owner of the forged
// address. A host that quotes one of our IDs has received our messages and wants to communicate. Other hosts
// get one answer per datagram, and one retransmission by timer per kInterval, whatever the number of their
// connections. Some retransmissions are necessary: if an RTU is lost, only another REP makes the peer repeat
// the RTU.
//
// A host that has quoted an ID from UDP port 4791 runs a Verbena agent, which sends all its CM messages.
// Other users of that host can send only from other ports. So messages from other ports of that host are
// dropped for kPortMemory. (Not longer, since the host may boot another system.) The port of a datagram alone
// proves nothing, since on a host with an RDMA adapter every user can send from port 4791. The datagram must
// be the first answer to a request of ours (Manager::note_port_of_answer()), whose ID only that host has
// received.
//
// The table has a fixed size: a new host may evict another host, which then is unknown again. Each connection
// also remembers that its peer uses port 4791. One thread.
class KnownPeers {
 public:
  // How long a host that has answered is remembered.
  static constexpr Duration kMemory = std::chrono::minutes(10);
  // How long messages from other ports of a host are dropped after an answer from UDP port 4791.
  static constexpr Duration kPortMemory = std::chrono::minutes(3);
  // The minimum interval between unsolicited datagrams to an unknown host.
  static constexpr Duration kInterval = std::chrono::milliseconds(500);

  // `secret` is the key of the hash, since peers choose their addresses (KeyedHash).
  explicit KnownPeers(uint64_t secret) : hash_(secret), entries_(kSets * kWays) {}

  // Records that `peer` has answered: a datagram from `peer` contains a communication ID that `peer` can know
  // only from a datagram of ours.
  void has_answered(const roce::Address& peer, TimePoint now);
  // Returns whether the peer has answered in the last kMemory.
  bool knows(const roce::Address& peer, TimePoint now) const;
  // Like has_answered(), for a first answer that came from UDP port 4791. For kPortMemory, the caller drops
  // messages from other ports of `peer` (has_roce_port()).
  void has_answered_from_roce_port(const roce::Address& peer, TimePoint now);
  bool has_roce_port(const roce::Address& peer, TimePoint now) const;
  // Returns whether an unsolicited datagram, such as a retransmission, may be sent to the peer now. Always
  // true for a known peer. For an unknown peer, counts the datagram as sent: the next may follow after
  // kInterval.
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
  // Returns nullptr if all entries of the set are in use.
  Entry* find_or_take(const roce::Address& peer, TimePoint now);
  Entry& entry_of_known(const roce::Address& peer, TimePoint now);

  const KeyedHash hash_;
  std::vector<Entry> entries_;
};

}  // namespace verbena::cm
