// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "adapter/congestion/incast.h"
#include "base/bytes.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// What a receiver of ours tells a sender of ours of an unreliable service: which packet it expects next,
// and how many have been missing in all. Nothing is sent again by that; it is for the sender to know what the
// path carries, which nobody tells it otherwise.
//
// The packet has an opcode of those that are left to manufacturers, and a PSN from the distant past, for the
// reasons that sack.h gives. Who asks for a receipt sets AckReq, which means nothing else in an
// unreliable service. A receiver sends a few to one who may not understand, and goes on when one was answered
// ("heard"). Its payload is two words: the PSN that is expected, with the bits of incast_bits.h; and how many
// packets were missing since the connection was made.
struct ReceiverReport {
  static constexpr uint32_t kBytes = 8;

  // nullopt: too short.
  static std::optional<ReceiverReport> read(ConstBytes payload);
  void write(std::array<std::byte, kBytes>& payload) const;

  roce::Psn expected;
  uint32_t missing = 0;  // modulo 2^32
  congestion::Incast incast;
};

}  // namespace verbena::transport
