// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace verbena::agent {

// What this agent has said, to know it again when it comes from an address of this host. Every program of the
// host can send a datagram from such an address to QP1, and so speak in the name of any connection that it
// knows the numbers of; but connection management of this host is the agent's, so what the agent has not said
// is forged.
//
// It remembers digests under a secret, each for one datagram that comes, and so many that those under way
// find room. One thread.
class OwnMessages {
 public:
  explicit OwnMessages(uint64_t secret) : secret_(secret), digests_(kSets * kWays) {}

  // It leaves now.
  void said(ConstBytes mad);
  // Whether it is one that has left, and has not come yet.
  bool heard(ConstBytes mad);

 private:
  static constexpr size_t kSets = 4096;  // a power of two
  static constexpr size_t kWays = 8;

  uint64_t digest_of(ConstBytes mad) const;
  uint64_t* set_of(uint64_t digest) { return &digests_[(digest & (kSets - 1)) * kWays]; }

  const uint64_t secret_;
  std::vector<uint64_t> digests_;  // of each set the oldest first, which makes room; 0: free
};

}  // namespace verbena::agent
