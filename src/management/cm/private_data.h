// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "management/cm/messages.h"

namespace verbena::cm {

// Puts private data in its place. False if there is more than room.
template <size_t N>
bool put(ConstBytes from, PrivateData<N>& to) {
  if (from.size() > N) return false;
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return true;
}

}  // namespace verbena::cm
