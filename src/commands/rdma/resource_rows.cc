// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "adapter/queues/status_words.h"
#include "base/format.h"
#include "base/text.h"
#include "commands/rdma/row.h"
#include "control/model/agent_status.h"

namespace verbena::commands::rdma {
namespace {

using control::AgentStatus;
using control::Link;
using control::ObjectNumbers;
using control::QpNumbers;
using control::SlotStatus;
using protocol::ObjectKind;

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

template <class Make>
std::vector<Row> object_rows(const AgentStatus& status, const Link& link, ObjectKind kind, Make make) {
  std::vector<Row> rows;
  for (const SlotStatus& slot : status.slots) {
    for (const ObjectNumbers& object : slot.objects) {
      if (object.kind != kind || object.device_index != link.device_index) continue;
      rows.push_back(make(slot, object));
      add_process(rows.back(), slot);
    }
  }
  return rows;
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

}  // namespace

const char* qp_type_text(uint32_t type) {
  return name_in(kTypes, type);
}

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

std::vector<Row> cq_rows(const AgentStatus& status, const Link& link) {
  return object_rows(status, link, ObjectKind::kCq, [&](const SlotStatus&, const ObjectNumbers& cq) {
    Row row = Row::of_device(link);
    row.add("cqn", cq.number).add("cqe", cq.values[protocol::kCqEntries]);
    row.add("users", cq.values[protocol::kCqUsers]).know("poll-ctx", "DIRECT");
    row.add_on_off("adaptive-moderation", false);
    add_number(row, "ctxn", cq.values[protocol::kCqContext]);
    return row;
  });
}

std::vector<Row> mr_rows(const AgentStatus& status, const Link& link) {
  return object_rows(status, link, ObjectKind::kMr, [&](const SlotStatus&, const ObjectNumbers& mr) {
    Row row = Row::of_device(link);
    row.add("mrn", mr.number);
    row.add_hex("rkey", mr.values[protocol::kMrRemoteKey]).add_hex("lkey", mr.values[protocol::kMrLocalKey]);
    row.add("mrlen", mr.values[protocol::kMrLength]);
    add_number(row, "pdn", mr.values[protocol::kMrPd]);
    return row;
  });
}

std::vector<Row> pd_rows(const AgentStatus& status, const Link& link) {
  return object_rows(status, link, ObjectKind::kPd, [&](const SlotStatus&, const ObjectNumbers& pd) {
    Row row = Row::of_device(link);
    // Programs have no local_dma_lkey; the kernel shows 0, too.
    row.add("pdn", pd.number).add_hex("local_dma_lkey", 0).add("users", pd.values[protocol::kPdUsers]);
    add_number(row, "ctxn", pd.values[protocol::kPdContext]);
    return row;
  });
}

std::vector<Row> context_rows(const AgentStatus& status, const Link& link) {
  return object_rows(status, link, ObjectKind::kContext,
                     [&](const SlotStatus&, const ObjectNumbers& context) {
                       Row row = Row::of_device(link);
                       row.add("ctxn", context.number);
                       return row;
                     });
}

std::vector<Row> srq_rows(const AgentStatus& status, const Link& link) {
  return object_rows(status, link, ObjectKind::kSrq, [&](const SlotStatus&, const ObjectNumbers& srq) {
    Row row = Row::of_device(link);
    row.add("srqn", srq.number).add("type", name_in(kSrqTypes, srq.values[protocol::kSrqType]));
    if (auto qps = control::qps_of_shared_receives(status, srq.number); !qps.empty())
      row.add_list("lqpn", std::move(qps));
    add_number(row, "pdn", srq.values[protocol::kSrqPd]);
    add_number(row, "cqn", srq.values[protocol::kSrqCq]);
    return row;
  });
}

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

}  // namespace verbena::commands::rdma
