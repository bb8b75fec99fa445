// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "commands/rdma/row.h"
#include "control/model/agent_status.h"

namespace verbena::commands::rdma {

// Return the objects of a device as rows, by slot and number. QPs and connection identifiers are those of
// `port`; 0 selects those without a port.
std::vector<Row> qp_rows(const control::AgentStatus& status, const control::Link& link, uint32_t port);
std::vector<Row> cm_id_rows(const control::AgentStatus& status, const control::Link& link, uint32_t port);
std::vector<Row> cq_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> mr_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> pd_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> context_rows(const control::AgentStatus& status, const control::Link& link);
std::vector<Row> srq_rows(const control::AgentStatus& status, const control::Link& link);

const char* qp_type_text(uint32_t type);

}  // namespace verbena::commands::rdma
