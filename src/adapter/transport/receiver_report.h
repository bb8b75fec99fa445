// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "adapter/congestion/incast.h"
#include "base/bytes.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Receiver report of an unreliable service, from a Verbena receiver to a Verbena sender: the next expected
// packet, and the total number of missing ones. Nothing is sent again; the sender learns what the path
// carries, which these services do not tell it otherwise.
//
// The packet has a vendor opcode, and a PSN from the distant past for the reasons that sack.h gives. The
// sender requests a report by AckReq, which has no other meaning in an unreliable service. A receiver sends a
// few reports to a peer that may not understand them, and continues once one was confirmed ("heard"). The
// payload is two words: the expected PSN, with the bits of incast_bits.h; and how many packets were missing
// since the connection was made.
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
