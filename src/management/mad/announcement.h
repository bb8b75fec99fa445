// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// What an agent says of a link to the hosts of its network: a datagram of a vendor class, to a multicast
// group. Its sender's address is that of the packet; what it says of it is not believed. Pure.
//
// The class is of range 2, under an OUI with the bit that says that it was given to nobody ("VER").
inline constexpr uint8_t kAnnouncementClass = 0x3e;
inline constexpr uint32_t kAnnouncementOui = 0x564552;
inline constexpr uint16_t kAnnouncementAttribute = 0x0001;

struct Announcement {
  Adapter adapter;
  bool wants_answer = false;  // the sender knows nobody yet

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

Mad encode(const Announcement& announcement);
// Nothing: it is none, or says what cannot be.
std::optional<Announcement> decode_announcement(const Mad& mad);

}  // namespace verbena::mad
