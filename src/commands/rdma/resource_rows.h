// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "commands/rdma/row.h"
#include "control/model/agent_status.h"

namespace verbena::commands::rdma {

// Return the objects of the device `link` as rows, in the order of their slots. qp_rows() and cm_id_rows()
// return those of `port`. A `port` of 0 selects objects without a port, and QPs whose port is unknown.
std::vector<Row> qp_rows(const control::AgentStatus& status, const control::Link& link, uint32_t port);
std::vector<Row> cm_id_rows(const control::AgentStatus& status, const control::Link& link, uint32_t port);
std::vector<Row> cq_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> mr_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> pd_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> context_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> srq_rows(const control::AgentStatus& status, const control::Link& link);

// Returns iproute2's name for an enum ibv_qp_type, such as "RC", or "UNKNOWN".
const char* qp_type_text(uint32_t type);

}  // namespace verbena::commands::rdma
