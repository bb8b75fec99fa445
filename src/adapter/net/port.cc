// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/port.h"

namespace verbena::net {

const char* drop_reason_name(DropReason reason) {
  static constexpr std::array<const char*, static_cast<size_t>(DropReason::kCount)> kNames = {
      "truncated",    "unknown_opcode", "bad_version",   "bad_padding", "unexpected_payload", "bad_icrc",
      "foreign_slot", "no_queue_pair",  "wrong_service", "bad_pkey",    "bad_source"};
  const auto index = static_cast<size_t>(reason);
  return index < kNames.size() ? kNames[index] : "unknown";
}

}  // namespace verbena::net
