// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

inline constexpr uint64_t kOwnGuid = 0x5054'00ff'fe00'0001;
inline constexpr uint64_t kOtherGuid = 0x5054'00ff'fe00'0002;
inline constexpr uint64_t kSwitchGuid = 0x0200'ffff'0a00'0000;

inline TimePoint at_second(int64_t second) {
  return TimePoint(std::chrono::seconds(1000 + second));
}

inline Adapter adapter(uint64_t guid, std::string description = "host rxe_eth0") {
  Adapter one;
  one.guid = guid;
  one.description = std::move(description);
  one.megabits = 10'000;
  one.network = {kIpv4Network, kSwitchGuid};
  return one;
}

inline roce::Address ipv4(uint8_t last) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  return roce::Address::from_ipv4(bytes);
}

// Returns a subnet with our own adapter and one that has announced itself.
inline Subnet example_subnet() {
  Subnet subnet(adapter(kOwnGuid, "here rxe_eth0"));
  subnet.hear(adapter(kOtherGuid, "there rxe_eth0"), ipv4(2), at_second(0));
  return subnet;
}

inline Mad request(uint8_t management_class, uint8_t method, uint16_t attribute, uint32_t modifier = 0) {
  Mad mad;
  mad.set_kind(management_class, management_class == kClassSubnAdministration ? 2 : 1, method, attribute);
  mad.set(kTransactionAt, uint64_t{0x1122334455667788});
  mad.set(kModifierAt, modifier);
  return mad;
}

inline MadStatus status_of(const Mad& mad) {
  return static_cast<MadStatus>(mad.get<uint16_t>(kStatusAt) & 0x7fff);
}

}  // namespace verbena::mad
