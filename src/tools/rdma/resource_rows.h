// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "agent_client/agent_status.h"
#include "tools/rdma/row.h"

namespace verbena::tools::rdma {

// The objects of a device, as rows; by slot and number. Those of QPs and of connection identifiers that
// belong to `port`, where 0 is for those that have none yet.
std::vector<Row> qp_rows(const agent_client::AgentStatus& status, const agent_client::Link& link,
                         uint32_t port);
std::vector<Row> cm_id_rows(const agent_client::AgentStatus& status, const agent_client::Link& link,
                            uint32_t port);
std::vector<Row> cq_rows(const agent_client::AgentStatus& status, const agent_client::Link& link);
std::vector<Row> mr_rows(const agent_client::AgentStatus& status, const agent_client::Link& link);
std::vector<Row> pd_rows(const agent_client::AgentStatus& status, const agent_client::Link& link);
std::vector<Row> context_rows(const agent_client::AgentStatus& status, const agent_client::Link& link);
std::vector<Row> srq_rows(const agent_client::AgentStatus& status, const agent_client::Link& link);

const char* qp_type_text(uint32_t type);

}  // namespace verbena::tools::rdma
