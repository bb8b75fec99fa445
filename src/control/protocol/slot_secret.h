// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace verbena::protocol {

// A secret in a slot's status page. A process that reconnects to the next agent sends the secret to prove
// that the slot is its own. A pid would not prove that, since the two agents may be in different pid
// namespaces. All zeros if there is none.
using SlotSecret = std::array<uint64_t, 2>;

constexpr bool is_set(const SlotSecret& secret) {
  return secret != SlotSecret{};
}

}  // namespace verbena::protocol
