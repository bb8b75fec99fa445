// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "management/cm/messages.h"

namespace verbena::cm {

// Copies private data into a message's field. Returns false, without copying, if the data is longer than the
// field. REQUIRES: the field is zero
template <size_t N>
bool put(ConstBytes from, PrivateData<N>& to) {
  if (from.size() > N) return false;
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return true;
}

}  // namespace verbena::cm
