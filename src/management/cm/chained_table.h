// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "management/cm/connection.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// A hash table of connections, chained through a pointer in each connection. Owns no connection, allocates
// only to grow, and may contain several connections with the same key. The hash depends on a secret, since
// peers choose the keys.
//
// Traits defines: Key; key(const Connection&); hook(Connection&), which returns the chain pointer as a
// Connection*&; words(const Key&, uint64_t (&)[3]), which sets the words to hash.
template <class Traits>
class ChainedTable {
 public:
  using Key = typename Traits::Key;

  explicit ChainedTable(uint64_t secret) : secret_(secret), buckets_(kFirstBuckets) {}

  // Inserts a connection. REQUIRES: the connection is not in the table. REQUIRES: its key does not change
  // while it is in the table
  void insert(Connection& connection) {
    if (size_ >= buckets_.size()) grow();
    Connection*& head = bucket(Traits::key(connection));
    Traits::hook(connection) = head;
    head = &connection;
    ++size_;
  }

  // Removes a connection. REQUIRES: the connection is in the table
  void erase(Connection& connection) {
    Connection** link = &bucket(Traits::key(connection));
    while (*link != &connection) link = &Traits::hook(**link);
    *link = Traits::hook(connection);
    Traits::hook(connection) = nullptr;
    --size_;
  }

  Connection* find(const Key& key) {
    Connection* at = bucket(key);
    while (at != nullptr && !(Traits::key(*at) == key)) at = Traits::hook(*at);
    return at;
  }
  const Connection* find(const Key& key) const { return const_cast<ChainedTable*>(this)->find(key); }

  size_t size() const { return size_; }

  // Removes all connections and calls done(connection) for each.
  template <class Done>
  void drain(Done done) {
    for (Connection*& head : buckets_) {
      while (head != nullptr) {
        Connection& connection = *head;
        head = Traits::hook(connection);
        done(connection);
      }
    }
    size_ = 0;
  }

 private:
  static constexpr size_t kFirstBuckets = 64;  // a power of two

  Connection*& bucket(const Key& key) { return buckets_[hash(key) & (buckets_.size() - 1)]; }

  uint64_t hash(const Key& key) const {
    __extension__ using Wide = unsigned __int128;
    uint64_t words[3];
    Traits::words(key, words);
    uint64_t state = secret_;
    for (const uint64_t word : words) {  // a folded product per word, as in wyhash
      const Wide product = static_cast<Wide>(state ^ word) * (secret_ | 1);
      state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ 0x9e3779b97f4a7c15;
    }
    return state ^ state >> 32;
  }

  void grow() {
    std::vector<Connection*> old(buckets_.size() * 2);
    old.swap(buckets_);
    for (Connection* at : old) {
      while (at != nullptr) {
        Connection& connection = *at;
        at = Traits::hook(connection);
        Connection*& head = bucket(Traits::key(connection));
        Traits::hook(connection) = head;
        head = &connection;
      }
    }
  }

  uint64_t secret_;
  std::vector<Connection*> buckets_;
  size_t size_ = 0;
};

struct ByLocalId {
  using Key = LocalId;
  static Key key(const Connection& c) { return c.info.local_id; }
  static Connection*& hook(Connection& c) { return c.next_by_local_id; }
  static void words(Key key, uint64_t (&words)[3]) { words[0] = key, words[1] = words[2] = 0; }
};

// A key: a number that a peer chose (communication ID or QPN), with the peer's address. Over RoCE an address
// identifies a GSI and a space of QPNs. GUIDs do not: GUIDs derived from MAC addresses repeat among
// containers.
struct PeerNumber {
  roce::Address peer;
  uint32_t number = 0;

  friend bool operator==(const PeerNumber&, const PeerNumber&) = default;
  static void words(const PeerNumber& key, uint64_t (&words)[3]) {
    std::memcpy(words, key.peer.bytes.data(), 16);
    words[2] = key.number;
  }
};

struct ByRemoteId : PeerNumber {
  using Key = PeerNumber;
  static Key key(const Connection& c) { return {c.info.path.destination, c.info.remote_id}; }
  static Connection*& hook(Connection& c) { return c.next_by_remote_id; }
};

// A key: the peer's QPN, for the active or the passive side of a connection. If an address is connected to
// itself, both sides are in this table, possibly with the same QPN: programs that connect without QPs invent
// QPNs (rdma-core's cmtime). For such a connection, the key of the active side differs from that of the
// passive side (kOtherSide).
struct ByRemoteQpn : PeerNumber {
  using Key = PeerNumber;
  static Key key(const roce::Address& own, const roce::Address& peer, uint32_t qpn, bool is_active) {
    return {peer, own == peer && is_active ? qpn | kOtherSide : qpn};
  }
  static Key key(const Connection& c) {
    const ConnectionInfo& info = c.info;
    return key(info.path.source, info.path.destination, info.remote_qpn, info.is_active);
  }

 private:
  static constexpr uint32_t kOtherSide = 1u << 31;  // above all QPNs, which have 24 bits

 public:
  static Connection*& hook(Connection& c) { return c.next_by_remote_qpn; }
};

}  // namespace verbena::cm
