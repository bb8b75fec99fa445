// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "wire/roce/path.h"

namespace verbena::engine {

// A multicast group on a network device of this host.
struct GroupKey {
  roce::Address group;
  uint32_t interface_index = 0;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};

}  // namespace verbena::engine
