// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "roce/path.h"
#include "roce/psn.h"
#include "roce/qpn.h"

namespace verbena::transport {

// A stretch of the memory of a connected QP's peer, and how that QP knows us.
struct PeerRange {
  roce::Qpn from;
  roce::Qpn to;
  roce::Psn first_psn;  // that our requests began with
  uint32_t rkey = 0;
  uint64_t address = 0;
  uint32_t length = 0;
  // For those who want to know which packets it stands for: the way these would have gone, the PSN that is
  // next in turn, and how much one carries. null: nobody will.
  const roce::Path* path = nullptr;
  roce::Psn next_psn = {};
  uint32_t path_mtu = 0;
};

// A way to carry out a request in the peer's memory without the peer's help, which may sleep. It is asked for
// one request at a time, when nothing of the QP is under way. Under the lock of the QP's shard.
//
// False means just "not this way": the request then goes by packets, and the peer answers as it always does.
// So every error is the peer's own.
class DirectAccess {
 public:
  virtual ~DirectAccess() = default;

  // Reads `bytes` at `offset` of the range. False: what it is read into may have been written.
  // REQUIRES: offset + bytes <= range.length, bytes > 0, and the pieces have as many together
  virtual bool read(const PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> to) = 0;
  // Writes all of the range. It declines while the peer is awake: to hand it a packet is faster then. False:
  // nothing, or a part of it, has been written.
  virtual bool write(const PeerRange& range, std::span<const ConstBytes> from) = 0;
};

}  // namespace verbena::transport
