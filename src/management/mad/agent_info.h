// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// How `verbena doctor PEER` finds out what is at the other end: a Get of a vendor class of range 2 to QP1,
// under the OUI of announcements (announcement.h). An agent answers with this; a kernel, and an agent from
// before there was this class, with the status for an unsupported method (IBTA volume 1, 13.4.7). Pure.
inline constexpr uint8_t kAgentInfoClass = 0x3f;
inline constexpr uint16_t kAgentInfoAttribute = 0x0001;

struct AgentInfo {
  std::string version;      // of Verbena; at most 31 bytes
  std::string description;  // host and link, as announcements have it
  uint8_t path_mtu = 0;     // enum ibv_mtu of the link that was asked
  roce::Address asked_by;   // where the request came from, as seen there

  friend bool operator==(const AgentInfo&, const AgentInfo&) = default;
};

Mad agent_info_request(uint32_t transaction);
bool is_agent_info_request(const MadHeader& header);
Mad answer_agent_info(const Mad& request, const AgentInfo& info);
// Nothing: it is no such answer, or one without success.
std::optional<AgentInfo> decode_agent_info(const Mad& answer);

}  // namespace verbena::mad
