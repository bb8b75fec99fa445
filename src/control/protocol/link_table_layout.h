// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "control/protocol/messages.h"

namespace verbena::protocol {

// The layout of the link table's file: a header, the interface indexes with a deleted link, then the links.
// Each link is a record, followed by the records of its GIDs. All clients share the sealed file, and the next
// agent starts from it. The header contains the record lengths. Records of a later version may be longer;
// readers ignore the part that they do not know.
inline constexpr uint32_t kLinkTableMagic = 0x6b6e6c76;  // "vlnk"
inline constexpr uint32_t kLinkTableVersion = 1;

struct LinkTableHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t generation;
  uint32_t next_device_index;
  uint32_t deleted_count;  // number of interface indexes, 4 bytes each, that follow the header
  uint32_t link_count;
  uint16_t link_record_bytes;  // 0 in files of protocol version 1, which have that version's lengths
  uint16_t gid_record_bytes;
};
static_assert(sizeof(LinkTableHeader) == 32);

inline constexpr uint32_t kLinkUp = 1;
inline constexpr uint32_t kLinkAutomatic = 2;
inline constexpr uint32_t kLinkHasNoWire = 4;  // the agent does not have UDP port 4791

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
  uint16_t speed;  // in 100 Mb/s; 0 if unknown
  // Since version 5:
  uint32_t peer_count;  // 0 if the link accepts packets from all hosts
  PeerRecord peers[kMaxPeersOfLink];
};
static_assert(sizeof(LinkRecord) == kLinkRecordBytesInVersion4 + 404);

struct GidRecord {
  uint32_t index;
  uint8_t gid[16];
};
static_assert(sizeof(GidRecord) == 20);

}  // namespace verbena::protocol
