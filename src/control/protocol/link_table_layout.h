// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "control/protocol/messages.h"

namespace verbena::protocol {

// The link table as bytes of a sealed file: a header, the deleted interface indexes, a record for each link,
// and behind each link's record those of its GIDs. Every client has the same file, and the next agent goes on
// from it. The file says how long its records are: those of a later version may be longer, and are read as
// far as they are known.
inline constexpr uint32_t kLinkTableMagic = 0x6b6e6c76;  // "vlnk"
inline constexpr uint32_t kLinkTableVersion = 1;

struct LinkTableHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t generation;
  uint32_t next_device_index;
  uint32_t deleted_count;  // interface indexes, 4 bytes each, follow at once
  uint32_t link_count;
  uint16_t link_record_bytes;  // 0: an agent of protocol version 1 wrote it, as long as they were then
  uint16_t gid_record_bytes;
};
static_assert(sizeof(LinkTableHeader) == 32);

inline constexpr uint32_t kLinkUp = 1;
inline constexpr uint32_t kLinkAutomatic = 2;
inline constexpr uint32_t kLinkHasNoWire = 4;  // UDP port 4791 is not the agent's

inline constexpr size_t kLinkRecordBytesInVersion4 = 108;

struct LinkRecord {
  char name[kLinkNameBytes];
  char netdev[kNetdevNameBytes];
  uint32_t device_index;
  uint32_t interface_index;
  uint32_t mtu;
  uint32_t flags;  // kLinkUp, kLinkAutomatic, kLinkHasNoWire
  uint32_t gid_count;
  uint8_t mac[6];
  uint16_t speed;  // 100 Mb/s; 0: not known
  // From version 5 on:
  uint32_t peer_count;  // 0: it hears all
  PeerRecord peers[kMaxPeersOfLink];
};
static_assert(sizeof(LinkRecord) == kLinkRecordBytesInVersion4 + 404);

struct GidRecord {
  uint32_t index;
  uint8_t gid[16];
};
static_assert(sizeof(GidRecord) == 20);

}  // namespace verbena::protocol
