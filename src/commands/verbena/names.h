// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "control/client/command_client.h"
#include "control/protocol/status_page.h"
#include "wire/roce/path.h"

namespace verbena::commands {

// Return names for numbers that processes publish in their status pages. A process may write any number, so
// an unknown 7 becomes "unknown(7)".
std::string qp_type_name(uint32_t type);    // enum ibv_qp_type: "RC"
std::string qp_state_name(uint32_t state);  // enum ibv_qp_state: "RTS"

// Returns the name of a port counter, such as "sent_packets". REQUIRES: counter <
// protocol::kPortFirstDropReason
std::string_view port_counter_name(size_t counter);

std::vector<std::string> peers_as_text(const control::Link& link);  // empty if the link accepts all peers
std::string gid_as_text(const roce::Address& gid);  // as ibv_devinfo -v prints it: ::ffff:192.0.2.1
std::string guid_as_text(const control::Link& link);
std::string mac_as_text(const control::Link& link);
uint32_t active_mtu(const control::Link& link);          // the port's largest path MTU, in bytes
std::string_view link_state(const control::Link& link);  // "ACTIVE" or "DOWN"

// Whether a QP's one-sided requests (READ, WRITE, atomic operations) are executed directly in the peer's
// memory. If not, says why.
struct PeerMemory {
  // The answer for JSON: "reached", a reason why not, such as "forbidden", or empty. It is empty if the QP
  // uses the wire or the answer is not known yet.
  std::string_view name;
  std::string_view why;  // the reason as text for people; empty if there is none
};
const PeerMemory& peer_memory_of(protocol::QpWay way);

// Returns the name of a QP's link, or "-" if the link is gone.
std::string link_name_of(const control::AgentStatus& status, const control::QpNumbers& qp);

}  // namespace verbena::commands
