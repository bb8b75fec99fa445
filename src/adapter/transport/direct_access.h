// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Identifies a requester's connection to its responder: both QPNs, and the first PSN of the requests.
struct Connection {
  roce::Qpn from;
  roce::Qpn to;
  roce::Psn first_psn;  // of the first request
};

// A range of the connected peer's memory.
struct PeerRange {
  // The QP's connection: a pointer to a long-lived object. A copy built field by field for each request would
  // be loaded with wide loads, for which store forwarding fails.
  const Connection* connection = nullptr;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
  // Describe the packets that the access replaces, for traces and counters: path, next PSN and path MTU.
  // `path` is null if they are not wanted.
  const roce::Path* path = nullptr;
  roce::Psn next_psn = {};
  uint32_t path_mtu = 0;
};

// An atomic operation on the eight bytes of a range.
struct AtomicChange {
  bool compares = false;
  uint64_t compare = 0;   // used if `compares`
  uint64_t swap_add = 0;  // the new value if `compares`, else the addend
};

// Executes READs, WRITEs and atomics in the memory of a peer process on this machine, without the peer's
// help; the peer may be asleep. Called for one request at a time, while nothing of the QP is in flight, with
// the lock of the QP's shard held.
//
// A result of false or nullopt is not an error of the request. The request is then sent in packets, and the
// peer answers as usual. So every error comes from the peer.
class DirectAccess {
 public:
  virtual ~DirectAccess() = default;

  // Whether the peer is a process of our own user, which may see our keys anyway. Returns false if this
  // process is undumpable.
  virtual bool is_of_our_user() const { return false; }

  // Consecutive requests that are sent in packets because something is always in flight. `rkey`, `length` and
  // `is_read` describe the next of these requests.
  struct Run {
    uint64_t bytes;  // sent in packets since the last is_best_for()
    uint32_t rkey;
    uint32_t length;
    bool is_read;
  };
  // Whether direct access is so much faster for the next request that the QP should wait until nothing is in
  // flight. The requester calls it once every few such requests.
  virtual bool is_best_for(const Run& run) = 0;

  // Rendezvous: whether the payloads of a long message should stay in place for the peer to fetch
  // (OutgoingPacket::lent).
  virtual bool lends() const { return false; }

  // read() and write() copy `bytes` bytes at `offset` of the range. REQUIRES: offset + bytes <= range.length,
  // bytes > 0, and the pieces hold `bytes` bytes in total.
  //
  // After read() has returned false, a part of `to` may have been written.
  virtual bool read(const PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> to) = 0;
  // Returns false where sending a packet is faster, or if the access fails. Then nothing, or a part, has been
  // written.
  virtual bool write(const PeerRange& range, uint32_t offset, uint32_t bytes,
                     std::span<const ConstBytes> from) = 0;
  // Executes an atomic operation and returns the previous value. Returns nullopt if nothing was changed.
  // REQUIRES: range.length is 8
  virtual std::optional<uint64_t> change(const PeerRange& range, const AtomicChange& change) = 0;
};

}  // namespace verbena::transport
