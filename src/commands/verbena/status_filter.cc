// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <strings.h>

#include "commands/verbena/names.h"
#include "commands/verbena/status_output.h"

namespace verbena::commands {
namespace {

using control::AgentStatus;
using control::LinkStatus;
using control::QpNumbers;
using control::SlotStatus;

template <class Value>
bool is_among(const std::vector<Value>& wanted, const Value& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

bool is_state_among(const std::vector<std::string>& wanted, const std::string& state) {
  return wanted.empty() || std::ranges::any_of(wanted, [&](const std::string& one) {
           return ::strcasecmp(one.c_str(), state.c_str()) == 0;
         });
}

}  // namespace

AgentStatus only(AgentStatus status, const StatusFilter& filter) {
  if (filter.wants_all()) return status;
  const bool wants_qps = filter.wants_queue_pairs() || !filter.links.empty();
  std::erase_if(status.slots, [&](SlotStatus& slot) {
    std::erase_if(slot.qps, [&](const QpNumbers& qp) {
      return !is_among(filter.links, link_name_of(status, qp)) || !is_among(filter.qpns, qp.qpn) ||
             !is_state_among(filter.states, qp_state_name(qp.state));
    });
    return !is_among(filter.pids, slot.pid) || !is_among(filter.programs, slot.program) ||
           (wants_qps && slot.qps.empty());
  });
  std::erase_if(status.links, [&](const LinkStatus& one) { return !is_among(filter.links, one.link.name); });
  status.connection_management = {};
  return status;
}

}  // namespace verbena::commands
