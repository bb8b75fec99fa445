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

// Names for the numbers that processes publish. A process may write any number; one without a meaning
// becomes "unknown(7)".
std::string qp_type_name(uint32_t type);    // enum ibv_qp_type: "RC"
std::string qp_state_name(uint32_t state);  // enum ibv_qp_state: "RTS"

// "eth0's" counters of a port beyond the reasons for drops, by protocol::PortCounter.
std::string_view port_counter_name(size_t counter);

std::vector<std::string> peers_as_text(const control::Link& link);  // empty: it accepts all
std::string gid_as_text(const roce::Address& gid);                  // as ibv_devinfo -v: ::ffff:192.0.2.1
std::string guid_as_text(const control::Link& link);
std::string mac_as_text(const control::Link& link);
uint32_t active_mtu(const control::Link& link);          // the largest path MTU, in bytes
std::string_view link_state(const control::Link& link);  // "ACTIVE" or "DOWN"

// Whether requests of a QP are carried out in its peer's memory, for programs: "reached"; empty: nobody
// tries, or nobody knows yet. For people, why they are not; empty: they are, or the same.
std::string_view peer_memory_name(protocol::QpWay way);
std::string_view why_unreached(protocol::QpWay way);

// The name of the link that a QP belongs to; "-" if that link is gone.
std::string link_name_of(const control::AgentStatus& status, const control::QpNumbers& qp);

}  // namespace verbena::commands
