// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/own_messages.h"

#include <algorithm>
#include <cstring>

namespace verbena::agent {

// Folds a product of each word into the digest, as in wyhash. No attacker sees a digest or can try many.
uint64_t OwnMessages::digest_of(ConstBytes mad) const {
  __extension__ using Wide = unsigned __int128;
  uint64_t state = secret_ ^ mad.size();
  for (size_t at = 0; at < mad.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, mad.data() + at, std::min(sizeof word, mad.size() - at));
    const Wide product = static_cast<Wide>(state ^ word) * (secret_ | 1);
    state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ 0x9e3779b97f4a7c15;
  }
  return std::max<uint64_t>(state, 1);
}

void OwnMessages::said(ConstBytes mad) {
  const uint64_t digest = digest_of(mad);
  uint64_t* const set = set_of(digest);
  std::copy(set + 1, set + kWays, set);
  set[kWays - 1] = digest;
}

bool OwnMessages::heard(ConstBytes mad) {
  const uint64_t digest = digest_of(mad);
  uint64_t* const set = set_of(digest);
  uint64_t* const found = std::find(set, set + kWays, digest);
  if (found == set + kWays) return false;
  std::copy_backward(set, found, found + 1);
  set[0] = 0;
  return true;
}

}  // namespace verbena::agent
