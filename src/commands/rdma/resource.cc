// SPDX-License-Identifier: Apache-2.0
// rdma resource: shows the objects that programs have open.
#include <algorithm>
#include <array>
#include <cerrno>

#include "commands/rdma/command.h"
#include "commands/rdma/row.h"
#include "control/model/agent_status.h"

namespace verbena::commands::rdma {
namespace {

using control::LinkStatus;

int help(Command& command) {
  command.say(verbena::format("Usage: {} resource\n", command.options().program));
  command.say(
      "          resource show [DEV]\n"
      "          resource show [qp|cm_id|pd|mr|cq|ctx|srq]\n");
  for (const std::string_view kind : {"qp", "cm_id"}) {
    command.say(
        verbena::format("          resource show {} link [DEV/PORT] [FILTER-NAME FILTER-VALUE]\n", kind));
  }
  for (const std::string_view kind : {"cq", "pd", "mr", "ctx", "srq"}) {
    command.say(verbena::format("          resource show {} dev [DEV] [FILTER-NAME FILTER-VALUE]\n", kind));
  }
  return Command::kDone;
}

// The filters of each kind of object. An ambiguous abbreviation means the first name.
constexpr auto kQpFilters = std::to_array<FilterName>({{"link", false},
                                                       {"lqpn", true},
                                                       {"rqpn", true},
                                                       {"pid", true},
                                                       {"sq-psn", true},
                                                       {"rq-psn", true},
                                                       {"type", false},
                                                       {"path-mig-state", false},
                                                       {"state", false},
                                                       {"pdn", true}});
constexpr auto kCmIdFilters = std::to_array<FilterName>({{"link", false},
                                                         {"lqpn", true},
                                                         {"qp-type", false},
                                                         {"state", false},
                                                         {"ps", false},
                                                         {"dev-type", false},
                                                         {"transport-type", false},
                                                         {"pid", true},
                                                         {"src-addr", false},
                                                         {"src-port", true},
                                                         {"dst-addr", false},
                                                         {"dst-port", true},
                                                         {"cm-idn", true}});
constexpr auto kCqFilters = std::to_array<FilterName>(
    {{"dev", false}, {"users", true}, {"poll-ctx", false}, {"pid", true}, {"cqn", true}, {"ctxn", true}});
constexpr auto kMrFilters = std::to_array<FilterName>({{"dev", false},
                                                       {"rkey", true},
                                                       {"lkey", true},
                                                       {"mrlen", true},
                                                       {"pid", true},
                                                       {"mrn", true},
                                                       {"pdn", true}});
constexpr auto kPdFilters = std::to_array<FilterName>(
    {{"dev", false}, {"users", true}, {"pid", true}, {"ctxn", true}, {"pdn", true}});
constexpr auto kContextFilters = std::to_array<FilterName>({{"dev", false}, {"pid", true}, {"ctxn", true}});
constexpr auto kSrqFilters = std::to_array<FilterName>({{"dev", false},
                                                        {"srqn", true},
                                                        {"type", false},
                                                        {"pdn", true},
                                                        {"cqn", true},
                                                        {"pid", true},
                                                        {"lqpn", true}});

int print_rows(Command& command, const std::vector<Row>& rows, const Filters& filters) {
  for (const Row& row : rows) {
    if (row.passes(filters)) row.print(command.printer());
  }
  return Command::kDone;
}

using RowsOfPort = std::vector<Row> (*)(const control::AgentStatus&, const control::Link&, uint32_t);
using RowsOfDevice = std::vector<Row> (*)(const control::AgentStatus&, const control::Link&);

Function of_ports(std::span<const FilterName> names, RowsOfPort rows) {
  return [=](Command& command) {
    Filters filters;
    if (const int result = take_filters(command, names, filters); result != 0) return result;
    return for_ports(command, false, [&](const LinkStatus& device, uint32_t port) {
      return print_rows(command, rows(*command.status(), device.link, port), filters);
    });
  };
}

Function of_devices(std::span<const FilterName> names, RowsOfDevice rows) {
  return [=](Command& command) {
    Filters filters;
    if (const int result = take_filters(command, names, filters); result != 0) return result;
    return for_devices(command, [&](const LinkStatus& device) {
      return print_rows(command, rows(*command.status(), device.link), filters);
    });
  };
}

// Refuses --raw with EINVAL, as drivers without raw data do.
Function unless_raw(const Function& other) {
  return [=](Command& command) {
    if (!command.options().raw) return other(command);
    return command.refuse(EINVAL, "there is no other form than this");
  };
}

int summarize(Command& command) {
  return for_devices(command, [&](const LinkStatus& device) {
    const control::Link& link = device.link;
    const control::ResourceSummary sum = control::summary_of(*command.status(), link);
    Printer& printer = command.printer();
    printer.begin_object();
    printer.text(verbena::format("{}: {}: ", link.device_index, printable(link.name)));
    printer.member("ifindex", link.device_index);
    printer.member("ifname", link.name);
    printer.field("pd", sum.pd);
    printer.field("cq", sum.cq);
    printer.field("qp", sum.qp);
    printer.field("cm_id", sum.cm_id);
    printer.field("mr", sum.mr);
    printer.field("ctx", sum.ctx);
    printer.field("srq", sum.srq);
    printer.end_object();
    return Command::kDone;
  });
}

int show(Command& command) {
  if (command.words().size() == 1) {
    const control::AgentStatus* status = command.status();
    if (status == nullptr) return Command::kFailed;
    const auto is_named = [&](const LinkStatus& one) { return one.link.name == command.words().word(); };
    if (std::ranges::any_of(status->links, is_named)) return summarize(command);
  }
  return choose(command, summarize,
                {{"qp", unless_raw(of_ports(kQpFilters, qp_rows))},
                 {"cm_id", of_ports(kCmIdFilters, cm_id_rows)},
                 {"cq", unless_raw(of_devices(kCqFilters, cq_rows))},
                 {"mr", unless_raw(of_devices(kMrFilters, mr_rows))},
                 {"pd", of_devices(kPdFilters, pd_rows)},
                 {"ctx", of_devices(kContextFilters, context_rows)},
                 {"srq", unless_raw(of_devices(kSrqFilters, srq_rows))}},
                "parameter");
}

}  // namespace

int show_resources(Command& command) {
  return choose(command, show, {{"show", show}, {"list", show}, {"help", help}}, "resource command");
}

}  // namespace verbena::commands::rdma
