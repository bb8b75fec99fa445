// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "protocol/messages.h"

namespace verbena::protocol {

// The link table as bytes of a sealed file: a header, the deleted interface indexes, a record for each link,
// and behind each link's record those of its GIDs. Every client has the same file, and the next agent goes on
// from it.
inline constexpr uint32_t kLinkTableMagic = 0x6b6e6c76;  // "vlnk"
inline constexpr uint32_t kLinkTableVersion = 1;

struct LinkTableHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t generation;
  uint32_t next_device_index;
  uint32_t deleted_count;  // interface indexes, 4 bytes each, follow at once
  uint32_t link_count;
  uint32_t reserved;
};
static_assert(sizeof(LinkTableHeader) == 32);

inline constexpr uint32_t kLinkUp = 1;
inline constexpr uint32_t kLinkAutomatic = 2;

struct LinkRecord {
  char name[kLinkNameBytes];
  char netdev[kNetdevNameBytes];
  uint32_t device_index;
  uint32_t interface_index;
  uint32_t mtu;
  uint32_t flags;  // kLinkUp, kLinkAutomatic
  uint32_t gid_count;
  uint8_t mac[6];
  uint8_t reserved[2];
};
static_assert(sizeof(LinkRecord) == 108);

struct GidRecord {
  uint32_t index;
  uint8_t gid[16];
};
static_assert(sizeof(GidRecord) == 20);

}  // namespace verbena::protocol
