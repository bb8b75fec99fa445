// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::transport {

// Two sizes that do not match, so that a request was refused. Error texts name them. `bytes` is the size that
// came, `room` the size that was expected or available.
struct Misfit {
  enum class Kind : uint8_t {
    kNone,
    kPathMtu,        // `bytes` of a packet's payload, `room`: the queue pair's path MTU
    kReceiveBuffer,  // `bytes` of a complete message, `room` in the receive request's buffers
    kPartOfMessage,  // `bytes` of a message received so far, `room` in the receive request's buffers
  };
  Kind kind = Kind::kNone;
  uint64_t bytes = 0;
  uint64_t room = 0;
};

}  // namespace verbena::transport
