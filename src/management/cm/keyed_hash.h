// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/roce/path.h"

namespace verbena::cm {

// A number that a peer chose (communication ID or QPN), with the peer's address. Over RoCE an address
// identifies a GSI and a space of QPNs. GUIDs do not: GUIDs derived from MAC addresses repeat among
// containers.
struct PeerNumber {
  roce::Address peer;
  uint32_t number = 0;

  friend bool operator==(const PeerNumber&, const PeerNumber&) = default;
};

// The hash of the tables of connections and peers. It depends on a secret, since peers choose the keys.
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

}  // namespace verbena::cm
