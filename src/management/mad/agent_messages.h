// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// An agent's announcement of a link to the hosts of its network: a datagram of a vendor class to a multicast
// group. An announcement contains no address: receivers use the packet's source address, so that no sender
// can claim another host's address. Pure: no clock, no system calls.
//
// The vendor class is of range 2 (it contains an OUI). The OUI is "VER", which has the bit for locally
// assigned numbers.
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

// The query by which `verbena doctor PEER` identifies the software at the other end. The query is a Get to
// QP1, in a vendor class of range 2 with the OUI of announcements. An agent answers with AgentInfo. Kernels,
// and Verbena agents of releases before this query, answer with the status for an unsupported method (IBTA
// volume 1, 13.4.7). Pure: no clock, no system calls.
inline constexpr uint8_t kAgentInfoClass = 0x3f;
inline constexpr uint16_t kAgentInfoAttribute = 0x0001;

struct AgentInfo {
  std::string version;      // of Verbena; at most 31 bytes
  std::string description;  // host and link, as Adapter::description; at most 64 bytes
  uint8_t path_mtu = 0;     // enum ibv_mtu of the queried link
  roce::Address asked_by;   // source address of the request, as the agent saw it

  friend bool operator==(const AgentInfo&, const AgentInfo&) = default;
};

// Returns the query. `transaction`: the low half of the transaction ID.
Mad agent_info_request(uint32_t transaction);
// Returns whether a datagram with this header is the query.
bool is_agent_info_request(const MadHeader& header);
// Returns the answer to the query `request`. Cuts texts that are too long.
Mad answer_agent_info(const Mad& request, const AgentInfo& info);
// Decodes an answer, and replaces unprintable characters in its texts. Returns nullopt if `answer` is another
// message, has an impossible path MTU, or reports an error.
std::optional<AgentInfo> decode_agent_info(const Mad& answer);

}  // namespace verbena::mad
