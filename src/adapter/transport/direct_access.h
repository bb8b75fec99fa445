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
  // Points to a long-lived object. A struct built field by field for each request would be loaded with wide
  // loads, for which store forwarding fails.
  const Connection* connection = nullptr;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
  // For traces and counters, the packets that the access replaces: their path, the next PSN and the path MTU.
  // null: not wanted.
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

// Executes requests in the peer's memory without the peer's help; the peer may be asleep. Called for one
// request at a time, while nothing of the QP is in flight, with the lock of the QP's shard held.
//
// False or nullopt only means "not this way": the request then goes in packets, and the peer answers as
// usual. So every error comes from the peer.
class DirectAccess {
 public:
  virtual ~DirectAccess() = default;

  // Whether the peer is a process of our own user, which may see our keys anyway. False in an undumpable
  // process.
  virtual bool is_of_our_user() const { return false; }

  // Consecutive requests that go in packets because something is always in flight, and the next of them.
  struct Run {
    uint64_t bytes;  // sent since the last is_best_for()
    uint32_t rkey;
    uint32_t length;
    bool is_read;
  };
  // Whether direct access is so much better for the next request that the QP should wait until nothing is in
  // flight. Called now and then.
  virtual bool is_best_for(const Run& run) = 0;

  // Rendezvous: whether the payloads of a long message should stay in place for the peer to fetch
  // (OutgoingPacket::lent).
  virtual bool lends() const { return false; }

  // read() and write() copy `bytes` bytes at `offset` of the range. REQUIRES: offset + bytes <= range.length,
  // bytes > 0, and the pieces hold `bytes` bytes in total.
  //
  // False: the destination may have been written.
  virtual bool read(const PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> to) = 0;
  // Declines where sending a packet is faster. False: nothing, or a part, has been written.
  virtual bool write(const PeerRange& range, uint32_t offset, uint32_t bytes,
                     std::span<const ConstBytes> from) = 0;
  // Returns the previous value. nullopt: nothing was changed. REQUIRES: range.length is 8
  virtual std::optional<uint64_t> change(const PeerRange& range, const AtomicChange& change) = 0;
};

}  // namespace verbena::transport
