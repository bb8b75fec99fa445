// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// The query by which `verbena doctor PEER` identifies the software at the other end: a Get to QP1, in a
// vendor class of range 2 under the OUI of announcements (announcement.h). An agent answers with AgentInfo.
// Kernels, and Verbena agents of releases before this query, answer with the status for an unsupported method
// (IBTA volume 1, 13.4.7). Pure.
inline constexpr uint8_t kAgentInfoClass = 0x3f;
inline constexpr uint16_t kAgentInfoAttribute = 0x0001;

struct AgentInfo {
  std::string version;      // of Verbena; at most 31 bytes
  std::string description;  // host and link, as Adapter::description; at most 64 bytes
  uint8_t path_mtu = 0;     // enum ibv_mtu of the queried link
  roce::Address asked_by;   // source address of the request, as the agent saw it

  friend bool operator==(const AgentInfo&, const AgentInfo&) = default;
};

Mad agent_info_request(uint32_t transaction);
bool is_agent_info_request(const MadHeader& header);
Mad answer_agent_info(const Mad& request, const AgentInfo& info);
// Decodes an answer, and replaces unprintable characters in its texts. Returns nullopt if `answer` is another
// message, has an impossible path MTU, or reports an error.
std::optional<AgentInfo> decode_agent_info(const Mad& answer);

}  // namespace verbena::mad
