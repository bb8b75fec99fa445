// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena::agent {

// Counters of identifiers, updated at each change, so that nobody needs to loop over all identifiers.
struct CmTally {
  size_t identifiers = 0;
  size_t listening = 0;
  size_t resolving = 0;  // waiting for a neighbour's hardware address

  CmTally& operator+=(const CmTally& other) {
    identifiers += other.identifiers;
    listening += other.listening;
    resolving += other.resolving;
    return *this;
  }
  CmTally& operator-=(const CmTally& other) {
    identifiers -= other.identifiers;
    listening -= other.listening;
    resolving -= other.resolving;
    return *this;
  }
};

}  // namespace verbena::agent
