// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace verbena::transport {

// An Ethernet frame on its way out.
struct OutgoingFrame {
  std::span<const ConstBytes>
      pieces;      // of user memory, in order; may fault. The list is borrowed for the call
  uint32_t bytes;  // their sum
  bool checksums;  // IBV_SEND_IP_CSUM: fill in those of IP, TCP and UDP
};

enum class FrameStatus : uint8_t {
  kSent,       // on its way, or lost as frames may be
  kBusy,       // no room now: the same frame again later
  kFault,      // its memory is gone
  kBadLength,  // shorter than an Ethernet header, or longer than the device's MTU allows
};

// Where a raw QP puts its frames: a batch that is filled and sent.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // False: the batch is full; it never is when empty. The memory of the frame's pieces is read until flush().
  virtual bool add(const OutgoingFrame& frame) = 0;

  // Sends what was added, in order, and forgets it.
  struct Flushed {
    uint32_t sent;       // so many frames went
    FrameStatus status;  // why the next did not; kSent when all did
  };
  virtual Flushed flush() = 0;
};

}  // namespace verbena::transport
