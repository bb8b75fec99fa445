// SPDX-License-Identifier: Apache-2.0
// rdma resource: shows the objects that programs have open.
#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "adapter/queues/status_words.h"
#include "commands/rdma/command.h"

namespace verbena::commands::rdma {
namespace {

using control::AgentStatus;
using control::Link;
using control::LinkStatus;
using control::ObjectNumbers;
using control::QpNumbers;
using control::SlotStatus;
using protocol::ObjectKind;

int help(Command& command) {
  command.say_usage(
      "Usage: {} resource\n"
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
constexpr std::string_view kQpFilters[] = {"link",   "lqpn", "rqpn",           "pid",   "sq-psn",
                                           "rq-psn", "type", "path-mig-state", "state", "pdn"};
constexpr std::string_view kCmIdFilters[] = {"link",     "lqpn",           "qp-type", "state",    "ps",
                                             "dev-type", "transport-type", "pid",     "src-addr", "src-port",
                                             "dst-addr", "dst-port",       "cm-idn"};
constexpr std::string_view kCqFilters[] = {"dev", "users", "poll-ctx", "pid", "cqn", "ctxn"};
constexpr std::string_view kMrFilters[] = {"dev", "rkey", "lkey", "mrlen", "pid", "mrn", "pdn"};
constexpr std::string_view kPdFilters[] = {"dev", "users", "pid", "ctxn", "pdn"};
constexpr std::string_view kContextFilters[] = {"dev", "pid", "ctxn"};
constexpr std::string_view kSrqFilters[] = {"dev", "srqn", "type", "pdn", "cqn", "pid", "lqpn"};

template <size_t N>
const char* name_in(const std::array<const char*, N>& names, uint64_t number) {
  return number < N && names[number] != nullptr ? names[number] : "UNKNOWN";
}

// Indexed by enum ibv_qp_type.
constexpr std::array<const char*, IBV_QPT_XRC_RECV + 1> kTypes = [] {
  std::array<const char*, IBV_QPT_XRC_RECV + 1> names{};
  names[IBV_QPT_RC] = "RC";
  names[IBV_QPT_UC] = "UC";
  names[IBV_QPT_UD] = "UD";
  names[IBV_QPT_RAW_PACKET] = "RAW_PACKET";
  names[IBV_QPT_XRC_SEND] = "XRC_INI";
  names[IBV_QPT_XRC_RECV] = "XRC_TGT";
  return names;
}();
constexpr std::array<const char*, 3> kMigration = {"MIGRATED", "REARM", "ARMED"};
constexpr std::array<const char*, 3> kSrqTypes = {"BASIC", "XRC", "TM"};
// Indexed by the kernel's enum rdma_cm_state.
constexpr std::array<const char*, 11> kCmStates = {
    "IDLE",       "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY",    "ROUTE_RESOLVED", "CONNECT",
    "DISCONNECT", "ADDR_BOUND", "LISTEN",        "DEVICE_REMOVAL", "DESTROYING"};

void add_process(Row& row, const SlotStatus& slot) {
  if (slot.pid != 0) row.add("pid", static_cast<uint64_t>(slot.pid));
  row.add("comm", slot.program);
}

// Adds a number unless it is 0, which means that the object it refers to is not listed or does not exist.
void add_number(Row& row, std::string_view key, uint64_t number) {
  if (number != 0) row.add(key, number);
}

Row qp_row(const Link& link, const SlotStatus& slot, const QpNumbers& qp, bool in_full) {
  const bool has_peer = qp.type == IBV_QPT_RC || qp.type == IBV_QPT_UC;
  const bool is_connected = has_peer || qp.type == IBV_QPT_XRC_SEND || qp.type == IBV_QPT_XRC_RECV;
  const char* migration = name_in(kMigration, qp.details[protocol::kQpMigration]);
  Row row = Row::of_port(link, static_cast<uint32_t>(qp.details[protocol::kQpPort]));
  row.add("lqpn", qp.qpn);
  if (has_peer) row.add("rqpn", qp.remote_qpn);
  row.add("type", qp_type_text(qp.type)).add("state", name_in(queues::kQpStates, qp.state));
  if (in_full) {
    if (has_peer) row.add("rq-psn", qp.details[protocol::kQpReceivePsn] & 0xffffff);
    row.add("sq-psn", qp.details[protocol::kQpSendPsn]);
    is_connected ? row.add("path-mig-state", migration) : row.know("path-mig-state", migration);
    add_number(row, "pdn", qp.details[protocol::kQpPd]);
  }
  add_process(row, slot);
  return row;
}

std::string text_of(const protocol::CmAddress& address) {
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(address.family, address.address, text, sizeof text) != nullptr ? text : "";
}

const char* port_space_text(uint32_t port_space) {
  switch (port_space) {
    case RDMA_PS_TCP:
      return "TCP";
    case RDMA_PS_UDP:
      return "UDP";
    case RDMA_PS_IPOIB:
    case RDMA_PS_IB:
      return "IPoIB";
    default:
      return "---";
  }
}

// Adds an address as "ADDRESS:PORT". Filters apply to address and port separately: passes() uses the first
// field of a name.
void add_address(Row& row, const protocol::CmAddress& address, std::string_view key,
                 std::string_view port_key) {
  if (address.family == 0) return;
  const std::string text = text_of(address);
  const uint16_t port = ntohs(address.port);
  row.know(key, text).know(port_key, uint64_t{port});
  row.add(key, verbena::format("{}:{}", text, port));
}

// Returns the QPs of a port in the order of their slots. A `port` of 0 selects QPs whose port is unknown.
std::vector<Row> qp_rows(const AgentStatus& status, const Link& link, uint32_t port) {
  std::vector<Row> rows;
  for (const SlotStatus& slot : status.slots) {
    const bool in_full = lists_objects(status, slot);
    for (const QpNumbers& qp : slot.qps) {
      const uint64_t its_port = in_full ? qp.details[protocol::kQpPort] : 0;
      if (qp.device_index == link.device_index && its_port == port) {
        rows.push_back(qp_row(link, slot, qp, in_full));
      }
    }
  }
  return rows;
}

// Returns the rdma_cm identifiers of a port. A `port` of 0 selects identifiers without a device.
std::vector<Row> cm_id_rows(const AgentStatus& status, const Link& link, uint32_t port) {
  std::vector<Row> rows;
  for (const protocol::CmIdRecord& id : status.cm_ids) {
    const bool has_device = id.device_index != protocol::kNoDevice;
    if (!is_of(id, link) || has_device != (port != 0)) continue;
    Row row = Row::of_port(link, port);
    row.add("cm-idn", id.number);
    add_number(row, "lqpn", id.local_qpn);
    if (has_device) row.add("qp-type", qp_type_text(id.qp_type));
    row.add("state", name_in(kCmStates, id.state)).add("ps", port_space_text(id.port_space));
    if (id.pid != 0) row.add("pid", static_cast<uint64_t>(id.pid));
    row.add("comm", load_text(id.program));
    add_address(row, id.source, "src-addr", "src-port");
    add_address(row, id.destination, "dst-addr", "dst-port");
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_cq(Row& row, const AgentStatus&, const SlotStatus& slot, const ObjectNumbers& cq) {
  row.add("cqn", cq.number).add("cqe", cq.values[protocol::kCqEntries]);
  row.add("users", cq.values[protocol::kCqUsers]).know("poll-ctx", "DIRECT");
  row.add_on_off("adaptive-moderation", false);
  add_number(row, "ctxn", cq.values[protocol::kCqContext]);
  add_process(row, slot);
}

void add_mr(Row& row, const AgentStatus&, const SlotStatus& slot, const ObjectNumbers& mr) {
  row.add("mrn", mr.number);
  row.add_hex("rkey", mr.values[protocol::kMrRemoteKey]).add_hex("lkey", mr.values[protocol::kMrLocalKey]);
  row.add("mrlen", mr.values[protocol::kMrLength]);
  add_number(row, "pdn", mr.values[protocol::kMrPd]);
  add_process(row, slot);
}

void add_pd(Row& row, const AgentStatus&, const SlotStatus& slot, const ObjectNumbers& pd) {
  // Programs have no local_dma_lkey; the kernel shows 0, too.
  row.add("pdn", pd.number).add_hex("local_dma_lkey", 0).add("users", pd.values[protocol::kPdUsers]);
  add_number(row, "ctxn", pd.values[protocol::kPdContext]);
  add_process(row, slot);
}

void add_context(Row& row, const AgentStatus&, const SlotStatus& slot, const ObjectNumbers& context) {
  row.add("ctxn", context.number);
  add_process(row, slot);
}

void add_srq(Row& row, const AgentStatus& status, const SlotStatus& slot, const ObjectNumbers& srq) {
  row.add("srqn", srq.number).add("type", name_in(kSrqTypes, srq.values[protocol::kSrqType]));
  if (auto qps = control::qps_of_shared_receives(status, srq.number); !qps.empty())
    row.add_list("lqpn", std::move(qps));
  add_number(row, "pdn", srq.values[protocol::kSrqPd]);
  add_number(row, "cqn", srq.values[protocol::kSrqCq]);
  add_process(row, slot);
}

Function of_ports(std::span<const std::string_view> names,
                  std::vector<Row> (*rows)(const AgentStatus&, const Link&, uint32_t port)) {
  return [=](Command& command) {
    Filters filters;
    if (const int result = take_filters(command, names, filters); result != 0) return result;
    return for_ports(command, false, [&](const LinkStatus& device, uint32_t port) {
      for (const Row& row : rows(*command.status(), device.link, port)) row.print(command.printer(), filters);
      return Command::kDone;
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

// Carries out a command that shows rdma_cm identifiers. Then says which are missing in the agent's list.
Function of_cm_ids(const Function& show) {
  return [=](Command& command) {
    const int result = show(command);
    const AgentStatus* status = command.status();
    if (status != nullptr && !status->cm_ids_note.empty())
      command.complain(verbena::format("cm_ids are missing: {}", status->cm_ids_note));
    return result;
  };
}

int summarize_devices(Command& command) {
  return for_devices(command, [&](const LinkStatus& device) {
    const Link& link = device.link;
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
  const Function summarize = of_cm_ids(summarize_devices);
  if (command.words().size() == 1) {
    const AgentStatus* status = command.status();
    if (status == nullptr) return Command::kFailed;
    const auto is_named = [&](const LinkStatus& one) { return one.link.name == command.words().word(); };
    if (std::ranges::any_of(status->links, is_named)) return summarize(command);
  }
  return choose(command, summarize,
                {{"qp", unless_raw(of_ports(kQpFilters, qp_rows))},
                 {"cm_id", of_cm_ids(of_ports(kCmIdFilters, cm_id_rows))},
                 {"cq", unless_raw(of_devices(kCqFilters, ObjectKind::kCq, add_cq))},
                 {"mr", unless_raw(of_devices(kMrFilters, ObjectKind::kMr, add_mr))},
                 {"pd", of_devices(kPdFilters, ObjectKind::kPd, add_pd)},
                 {"ctx", of_devices(kContextFilters, ObjectKind::kContext, add_context)},
                 {"srq", unless_raw(of_devices(kSrqFilters, ObjectKind::kSrq, add_srq))}},
                "parameter");
}

}  // namespace

const char* qp_type_text(uint32_t type) {
  return name_in(kTypes, type);
}

Function of_devices(std::span<const std::string_view> names, ObjectKind kind, AddFields add) {
  return [=](Command& command) {
    Filters filters;
    if (const int result = take_filters(command, names, filters); result != 0) return result;
    return for_devices(command, [&](const LinkStatus& device) {
      for (const SlotStatus& slot : command.status()->slots) {
        for (const ObjectNumbers& object : slot.objects) {
          if (object.kind != kind || object.device_index != device.link.device_index) continue;
          Row row = Row::of_device(device.link);
          add(row, *command.status(), slot, object);
          row.print(command.printer(), filters);
        }
      }
      return Command::kDone;
    });
  };
}

int show_resources(Command& command) {
  return choose(command, show, {{"show", show}, {"list", show}, {"help", help}}, "resource command");
}

}  // namespace verbena::commands::rdma
