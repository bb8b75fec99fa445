// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "control/client/admin.h"
#include "control/protocol/status_page.h"
#include "wire/roce/path.h"

namespace verbena::commands {

// Names for numbers that processes publish in their status pages. A process may write any number; an unknown
// 7 becomes "unknown(7)".
std::string qp_type_name(uint32_t type);    // enum ibv_qp_type: "RC"
std::string qp_state_name(uint32_t state);  // enum ibv_qp_state: "RTS"

// The name of a port counter below protocol::kPortFirstDropReason, such as "sent_packets".
std::string_view port_counter_name(size_t counter);

std::vector<std::string> peers_as_text(const control::Link& link);  // empty: it accepts all peers
std::string gid_as_text(const roce::Address& gid);  // as ibv_devinfo -v prints it: ::ffff:192.0.2.1
std::string guid_as_text(const control::Link& link);
std::string mac_as_text(const control::Link& link);
uint32_t active_mtu(const control::Link& link);          // in bytes; the port's largest path MTU
std::string_view link_state(const control::Link& link);  // "ACTIVE" or "DOWN"

// Whether this process carries out a QP's one-sided requests directly in the peer's memory.
// peer_memory_name() is for programs: "reached", a reason such as "forbidden", or empty if not tried or not
// known yet. why_unreached() is the reason as text for people; empty if there is none.
std::string_view peer_memory_name(protocol::QpWay way);
std::string_view why_unreached(protocol::QpWay way);

// The name of a QP's link; "-" if the link is gone.
std::string link_name_of(const control::AgentStatus& status, const control::QpNumbers& qp);

}  // namespace verbena::commands
