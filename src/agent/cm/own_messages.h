// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace verbena::agent {

// Detects forged messages of connection management that come from an address of this host. Every program of
// this host can send a datagram from such an address to QP1, and so forge messages of any connection whose
// IDs it knows. Only the agent may send such messages here, so one that it has not sent is forged.
//
// Keeps a keyed digest of each sent message until the message arrives here. There is room for 32,768 digests;
// newer ones replace the oldest. For one thread.
class OwnMessages {
 public:
  explicit OwnMessages(uint64_t secret) : secret_(secret), digests_(kSets * kWays) {}

  // Records a message that the agent is sending.
  void said(ConstBytes mad);
  // Returns whether the agent sent this message and it has not arrived yet. A later copy counts as forged.
  bool heard(ConstBytes mad);

 private:
  static constexpr size_t kSets = 4096;  // a power of two
  static constexpr size_t kWays = 8;

  uint64_t digest_of(ConstBytes mad) const;
  uint64_t* set_of(uint64_t digest) { return &digests_[(digest & (kSets - 1)) * kWays]; }

  const uint64_t secret_;
  std::vector<uint64_t> digests_;  // each set: the oldest comes first, and is replaced first; 0: free
};

}  // namespace verbena::agent
