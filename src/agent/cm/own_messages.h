// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace verbena::agent {

// Remembers the agent's own messages, to recognize them when they arrive from an address of this host. Every
// program of this host can send a datagram from such an address to QP1, and so forge messages of any
// connection whose IDs it knows. Connection management of this host is the agent's alone, so a message that
// the agent has not sent is forged.
//
// Keeps keyed digests, one for each sent datagram until it arrives, with room for all datagrams in flight.
// For one thread.
class OwnMessages {
 public:
  explicit OwnMessages(uint64_t secret) : secret_(secret), digests_(kSets * kWays) {}

  // Records a message that is being sent.
  void said(ConstBytes mad);
  // Whether the message was sent and has not arrived yet. Forgets it.
  bool heard(ConstBytes mad);

 private:
  static constexpr size_t kSets = 4096;  // a power of two
  static constexpr size_t kWays = 8;

  uint64_t digest_of(ConstBytes mad) const;
  uint64_t* set_of(uint64_t digest) { return &digests_[(digest & (kSets - 1)) * kWays]; }

  const uint64_t secret_;
  std::vector<uint64_t> digests_;  // in each set the oldest first, which is replaced; 0: free
};

}  // namespace verbena::agent
