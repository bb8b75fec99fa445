// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace verbena::transport {

// An outgoing Ethernet frame.
struct OutgoingFrame {
  std::span<const ConstBytes>
      pieces;      // user memory, in order; may fault. The list is valid only during the call
  uint32_t bytes;  // their sum
  bool checksums;  // IBV_SEND_IP_CSUM: fill in IP, TCP and UDP checksums
};

enum class FrameStatus : uint8_t {
  kSent,       // sent; may be lost on the way, as any frame
  kBusy,       // no room now: retry the same frame later
  kFault,      // the frame's memory is gone
  kBadLength,  // shorter than an Ethernet header, or longer than the device's MTU allows
};

// Output of a raw QP: a batch of frames that is filled and then sent.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // Adds a frame to the batch. Returns false if the batch is full, which an empty batch never is. The memory
  // of the frame's pieces may be read until flush().
  virtual bool add(const OutgoingFrame& frame) = 0;

  // Sends the batch in order, and empties it.
  struct Flushed {
    uint32_t sent;       // number of frames sent
    FrameStatus status;  // why the next one was not sent; kSent: all were
  };
  virtual Flushed flush() = 0;
};

}  // namespace verbena::transport
