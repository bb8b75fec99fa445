// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace verbena::protocol {

// A slot's status page says it, and a process that comes back to the next agent repeats it: who knows it has
// the page. A pid would not do, as the two agents may be in different pid namespaces. All 0: there is none.
using SlotSecret = std::array<uint64_t, 2>;

constexpr bool is_set(const SlotSecret& secret) {
  return secret != SlotSecret{};
}

}  // namespace verbena::protocol
