// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// A number that a peer chose (communication ID or QPN), with the peer's address. The address makes the number
// unique: over RoCE, each address has a GSI and QPNs of its own. A GUID would not do, because GUIDs derived
// from MAC addresses repeat among containers.
struct PeerNumber {
  roce::Address peer;
  uint32_t number = 0;

  friend bool operator==(const PeerNumber&, const PeerNumber&) = default;
};

// The hash of the tables of connections and peers. The hash depends on a secret: otherwise peers, which
// choose the keys, could choose keys with equal hashes.
class KeyedHash {
 public:
  explicit KeyedHash(uint64_t secret) : secret_(secret) {}

  size_t operator()(uint32_t number) const { return finished(mixed(secret_, number)); }
  size_t operator()(const PeerNumber& key) const {
    uint64_t words[2];
    std::memcpy(words, key.peer.bytes.data(), sizeof words);
    return finished(mixed(mixed(mixed(secret_, words[0]), words[1]), key.number));
  }

 private:
  // A folded product for each word, as in wyhash.
  uint64_t mixed(uint64_t state, uint64_t word) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(state ^ word) * (secret_ | 1);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ 0x9e3779b97f4a7c15;
  }
  static size_t finished(uint64_t state) { return state ^ state >> 32; }

  uint64_t secret_;
};

// Generates communication IDs. No ID repeats before all 2^32 were used, and observed IDs do not reveal later
// ones. So a host that quotes an ID must have received a message with that ID. (With a mask, as the kernel
// uses, a host could compute all IDs from one connection.) One thread.
class IdSequence {
 public:
  // With `mask`, next() returns a counter XORed with the mask, as the kernel does. The result is byte-swapped
  // so that the counter changes the first byte on the wire.
  IdSequence(uint64_t secret, std::optional<uint32_t> mask) : secret_(secret), mask_(mask) {}

  // Returns the next ID, which may be 0.
  uint32_t next() {
    const uint32_t count = drawn_++;
    return mask_ ? byteswap(count ^ *mask_) : permuted(count);
  }

 private:
  // Encrypts the number by a Feistel network, which is a bijection for any round function.
  uint32_t permuted(uint32_t number) const {
    auto left = static_cast<uint16_t>(number >> 16);
    auto right = static_cast<uint16_t>(number);
    for (uint64_t round = 0; round < kRounds; ++round) {
      const auto mixed = static_cast<uint16_t>(left ^ mix(round << 16 | right));
      left = right;
      right = mixed;
    }
    return static_cast<uint32_t>(left) << 16 | right;
  }

  uint64_t mix(uint64_t word) const {
    __extension__ using Wide = unsigned __int128;
    uint64_t state = secret_ ^ word;
    for (const uint64_t factor : {secret_ | 1, uint64_t{0x9e3779b97f4a7c15}}) {
      const Wide product = static_cast<Wide>(state ^ 0xbf58476d1ce4e5b9) * factor;
      state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ secret_;
    }
    return state >> 24;
  }

  static constexpr uint64_t kRounds = 8;
  const uint64_t secret_;
  const std::optional<uint32_t> mask_;
  uint32_t drawn_ = 0;
};

}  // namespace verbena::cm
