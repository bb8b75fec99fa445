// SPDX-License-Identifier: Apache-2.0
#include "control/model/link.h"

#include <algorithm>

#include "base/bytes.h"

namespace verbena::control {

std::array<uint8_t, 8> guid_of(const Link& link) {
  const bool has_mac = std::any_of(link.mac.begin(), link.mac.end(), [](uint8_t byte) { return byte != 0; });
  if (!has_mac) {  // "locally administered", "verb", and the interface index: unique on this machine
    std::array<uint8_t, 8> guid{0x02, 'v', 'r', 'b'};
    store_be<uint32_t>(&guid[4], link.interface_index);
    return guid;
  }
  // EUI-64 from EUI-48, with the universal/local bit inverted (RFC 4291 appendix A), as in the kernel's rxe.
  const auto& mac = link.mac;
  return {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
}

}  // namespace verbena::control
