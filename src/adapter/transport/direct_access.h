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

// How a connected QP knows the one that sends it requests.
struct Connection {
  roce::Qpn from;
  roce::Qpn to;
  roce::Psn first_psn;  // that the requests began with
};

// A stretch of the memory of a connected QP's peer.
struct PeerRange {
  // It has stood there for long: what is made for each request is put together of single fields, which a
  // processor does not forward to whom loads several at once.
  const Connection* connection = nullptr;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
  // For those who want to know which packets it stands for: the way these would have gone, the PSN that is
  // next in turn, and how much one carries. null: nobody will.
  const roce::Path* path = nullptr;
  roce::Psn next_psn = {};
  uint32_t path_mtu = 0;
};

// An atomic on the eight bytes of a range.
struct AtomicChange {
  bool compares = false;
  uint64_t compare = 0;   // if it compares
  uint64_t swap_add = 0;  // what is stored then, or else added
};

// A way to carry out a request in the peer's memory without the peer's help, which may sleep. It is asked for
// one request at a time, when nothing of the QP is under way. Under the lock of the QP's shard.
//
// False, or nothing, means just "not this way": the request then goes by packets, and the peer answers as it
// always does. So every error is the peer's own.
class DirectAccess {
 public:
  virtual ~DirectAccess() = default;

  // The peer is a process of our own user, which is shown our keys anyway. False in an undumpable process.
  virtual bool is_of_our_user() const { return false; }

  // Requests that follow each other by packets, as something is always under way; and the next of them.
  struct Run {
    uint64_t bytes;  // that have gone since this was asked last
    uint32_t rkey;
    uint32_t length;
    bool is_read;
  };
  // Whether this way is that much better for the next that it is worth waiting until nothing of the QP is
  // under way. Asked now and then.
  virtual bool is_best_for(const Run& run) = 0;

  // The other way round: whether the payloads of a long message had better stay where they are, for the peer
  // to fetch (OutgoingPacket::lent).
  virtual bool lends() const { return false; }

  // For both: `bytes` at `offset` of the range. REQUIRES: offset + bytes <= range.length, bytes > 0, and the
  // pieces have as many together.
  //
  // False: what it is read into may have been written.
  virtual bool read(const PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> to) = 0;
  // It declines where to hand the peer a packet is faster. False: nothing, or a part of it, has been written.
  virtual bool write(const PeerRange& range, uint32_t offset, uint32_t bytes,
                     std::span<const ConstBytes> from) = 0;
  // The value before. Nothing: nothing was changed. REQUIRES: range.length is 8
  virtual std::optional<uint64_t> change(const PeerRange& range, const AtomicChange& change) = 0;
};

}  // namespace verbena::transport
