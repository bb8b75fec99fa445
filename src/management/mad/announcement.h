// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// An agent's announcement of a link to the hosts of its network: a datagram of a vendor class to a multicast
// group. An announcement contains no address: receivers use the packet's source address, so that no sender
// can claim another's. Pure.
//
// The class is of range 2, under the OUI "VER", which has the bit for locally assigned numbers.
inline constexpr uint8_t kAnnouncementClass = 0x3e;
inline constexpr uint32_t kAnnouncementOui = 0x564552;
inline constexpr uint16_t kAnnouncementAttribute = 0x0001;

struct Announcement {
  Adapter adapter;
  // The sender knows no neighbours yet, so receivers should announce themselves to it.
  bool wants_answer = false;

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

Mad encode(const Announcement& announcement);
// Decodes an announcement. Returns nullopt if the datagram is another message or has impossible values, such
// as an unprintable description.
std::optional<Announcement> decode_announcement(const Mad& mad);

}  // namespace verbena::mad
