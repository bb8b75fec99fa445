// SPDX-License-Identifier: Apache-2.0
// Operations on resources: the number of objects of each kind, and their lists.
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/text.h"
#include "control/model/agent_status.h"
#include "preload/netlink/exchange.h"

namespace verbena::rdma_netlink {
namespace {

using control::ObjectNumbers;
using control::QpNumbers;
using control::SlotStatus;
using protocol::ObjectKind;

// Omits the number 0: the other object does not exist or is not listed.
void put_number(Attributes& entry, rdma_nldev_attr type, uint64_t number) {
  if (number != 0) entry.put_u32(type, static_cast<uint32_t>(number));
}

Attributes summarize(const Exchange& exchange, const control::Link& link) {
  const control::ResourceSummary sum = control::summary_of(exchange.status, link);
  Attributes table;
  const auto put = [&](std::string_view name, uint64_t count) {
    Attributes entry;
    entry.put_text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
    entry.put_u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
    table.put_nest(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, entry);
  };
  put("pd", sum.pd);
  put("cq", sum.cq);
  put("qp", sum.qp);
  put("cm_id", sum.cm_id);
  put("mr", sum.mr);
  put("ctx", sum.ctx);
  put("srq", sum.srq);
  return handle_of(link).put_nest(RDMA_NLDEV_ATTR_RES_SUMMARY, table);
}

// An object in a list: its number, its port (0: none yet), and its attributes.
struct Entry {
  uint32_t number;
  uint32_t port;
  Attributes attributes;
};
using Entries = std::vector<Entry>;

template <class Make>
Entries entries_of(const Exchange& exchange, ObjectKind kind, Make make) {
  Entries entries;
  for (const SlotStatus& slot : exchange.status.slots) {
    for (const ObjectNumbers& object : slot.objects) {
      if (object.kind != kind || object.device_index != exchange.device->link.device_index) continue;
      Attributes entry;
      make(entry, object);
      put_process(entry, slot.pid, slot.program);
      entries.push_back({object.number, 0, std::move(entry)});
    }
  }
  return entries;
}

Attributes describe_qp(const SlotStatus& slot, const QpNumbers& qp, bool in_full) {
  const bool has_peer = qp.type == IBV_QPT_RC || qp.type == IBV_QPT_UC;
  const bool is_connected = has_peer || qp.type == IBV_QPT_XRC_SEND || qp.type == IBV_QPT_XRC_RECV;
  const auto detail = [&](protocol::QpDetail which) { return in_full ? qp.details[which] : 0; };
  Attributes entry;
  put_number(entry, RDMA_NLDEV_ATTR_PORT_INDEX, detail(protocol::kQpPort));
  entry.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, qp.qpn);
  if (has_peer) entry.put_u32(RDMA_NLDEV_ATTR_RES_RQPN, qp.remote_qpn);
  if (has_peer && in_full) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_RQ_PSN,
                  static_cast<uint32_t>(detail(protocol::kQpReceivePsn) & 0xffffff));
  }
  // Readers reject a QP without this attribute.
  entry.put_u32(RDMA_NLDEV_ATTR_RES_SQ_PSN, static_cast<uint32_t>(detail(protocol::kQpSendPsn)));
  if (is_connected && in_full) {
    entry.put_u8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, static_cast<uint8_t>(detail(protocol::kQpMigration)));
  }
  entry.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<uint8_t>(qp.type));
  entry.put_u8(RDMA_NLDEV_ATTR_RES_STATE, static_cast<uint8_t>(qp.state));
  put_number(entry, RDMA_NLDEV_ATTR_RES_PDN, detail(protocol::kQpPd));
  put_process(entry, slot.pid, slot.program);
  return entry;
}

// Lists the QPs of an SRQ. iproute2 prints at most 255 characters of them, including commas, and omits an SRQ
// with more. Up to 20 QPs are listed singly; more as ranges of consecutive numbers, as many as fit.
Attributes describe_qps_of(const Exchange& exchange, uint32_t srq) {
  constexpr size_t kFew = 20;
  constexpr size_t kMaxRanges = 14;
  std::vector<uint32_t> qps = control::qps_of_shared_receives(exchange.status, srq);
  Attributes table;
  if (qps.size() <= kFew) {
    for (const uint32_t qp : qps) {
      Attributes one;
      table.put_nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, one.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, qp));
    }
    return table;
  }
  std::ranges::sort(qps);
  size_t ranges = 0;
  for (size_t first = 0, last = 0; first < qps.size() && ranges < kMaxRanges; first = ++last, ++ranges) {
    while (last + 1 < qps.size() && qps[last + 1] == qps[last] + 1) ++last;
    Attributes range;
    range.put_u32(RDMA_NLDEV_ATTR_MIN_RANGE, qps[first]).put_u32(RDMA_NLDEV_ATTR_MAX_RANGE, qps[last]);
    table.put_nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, range);
  }
  return table;
}

// Adds an address as a sockaddr_storage, the kernel's format.
void put_address(Attributes& entry, rdma_nldev_attr type, const protocol::CmAddress& address) {
  if (address.family == 0) return;
  sockaddr_storage storage{};
  if (address.family == AF_INET) {
    sockaddr_in four{.sin_family = AF_INET, .sin_port = address.port, .sin_addr = {}, .sin_zero = {}};
    std::memcpy(&four.sin_addr, address.address, sizeof four.sin_addr);
    std::memcpy(&storage, &four, sizeof four);
  } else {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = address.port;
    six.sin6_scope_id = address.scope_id;
    std::memcpy(&six.sin6_addr, address.address, sizeof six.sin6_addr);
    std::memcpy(&storage, &six, sizeof six);
  }
  entry.put(type, std::as_bytes(std::span<const sockaddr_storage, 1>(&storage, 1)));
}

Entries list_qps(const Exchange& exchange) {
  Entries entries;
  for (const SlotStatus& slot : exchange.status.slots) {
    const bool in_full = control::lists_objects(exchange.status, slot);
    for (const QpNumbers& qp : slot.qps) {
      if (qp.device_index != exchange.device->link.device_index) continue;
      const auto port = in_full ? static_cast<uint32_t>(qp.details[protocol::kQpPort]) : 0;
      entries.push_back({qp.qpn, port, describe_qp(slot, qp, in_full)});
    }
  }
  return entries;
}

Entries list_cm_ids(const Exchange& exchange) {
  Entries entries;
  for (const protocol::CmIdRecord& id : exchange.status.cm_ids) {
    if (!control::is_of(id, exchange.device->link)) continue;
    const bool has_device = id.device_index != protocol::kNoDevice;
    Attributes entry;
    if (has_device) entry.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPorts);
    entry.put_u32(RDMA_NLDEV_ATTR_RES_CM_IDN, id.number);
    put_number(entry, RDMA_NLDEV_ATTR_RES_LQPN, id.local_qpn);
    if (has_device) entry.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, id.qp_type);
    entry.put_u8(RDMA_NLDEV_ATTR_RES_STATE, id.state);
    entry.put_u32(RDMA_NLDEV_ATTR_RES_PS, id.port_space);
    put_address(entry, RDMA_NLDEV_ATTR_RES_SRC_ADDR, id.source);
    put_address(entry, RDMA_NLDEV_ATTR_RES_DST_ADDR, id.destination);
    put_process(entry, id.pid, load_text(id.program));
    entries.push_back({id.number, has_device ? kPorts : 0, std::move(entry)});
  }
  return entries;
}

Entries list_cqs(const Exchange& exchange) {
  return entries_of(exchange, ObjectKind::kCq, [](Attributes& entry, const ObjectNumbers& cq) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_CQN, cq.number);
    entry.put_u32(RDMA_NLDEV_ATTR_RES_CQE, static_cast<uint32_t>(cq.values[protocol::kCqEntries]));
    entry.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, cq.values[protocol::kCqUsers]);
    entry.put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 0);
    put_number(entry, RDMA_NLDEV_ATTR_RES_CTXN, cq.values[protocol::kCqContext]);
  });
}

Entries list_mrs(const Exchange& exchange) {
  return entries_of(exchange, ObjectKind::kMr, [](Attributes& entry, const ObjectNumbers& mr) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_MRN, mr.number);
    entry.put_u32(RDMA_NLDEV_ATTR_RES_RKEY, static_cast<uint32_t>(mr.values[protocol::kMrRemoteKey]));
    entry.put_u32(RDMA_NLDEV_ATTR_RES_LKEY, static_cast<uint32_t>(mr.values[protocol::kMrLocalKey]));
    entry.put_u64(RDMA_NLDEV_ATTR_RES_MRLEN, mr.values[protocol::kMrLength]);
    put_number(entry, RDMA_NLDEV_ATTR_RES_PDN, mr.values[protocol::kMrPd]);
  });
}

Entries list_pds(const Exchange& exchange) {
  return entries_of(exchange, ObjectKind::kPd, [](Attributes& entry, const ObjectNumbers& pd) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_PDN, pd.number);
    // Programs have no such key, for which the kernel reports 0.
    entry.put_u32(RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY, 0);
    entry.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, pd.values[protocol::kPdUsers]);
    put_number(entry, RDMA_NLDEV_ATTR_RES_CTXN, pd.values[protocol::kPdContext]);
  });
}

Entries list_contexts(const Exchange& exchange) {
  return entries_of(exchange, ObjectKind::kContext, [](Attributes& entry, const ObjectNumbers& context) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, context.number);
  });
}

Entries list_srqs(const Exchange& exchange) {
  return entries_of(exchange, ObjectKind::kSrq, [&](Attributes& entry, const ObjectNumbers& srq) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_SRQN, srq.number);
    entry.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<uint8_t>(srq.values[protocol::kSrqType]));
    entry.put_nest(RDMA_NLDEV_ATTR_RES_QP, describe_qps_of(exchange, srq.number));
    put_number(entry, RDMA_NLDEV_ATTR_RES_PDN, srq.values[protocol::kSrqPd]);
    put_number(entry, RDMA_NLDEV_ATTR_RES_CQN, srq.values[protocol::kSrqCq]);
  });
}

// A kind of objects: the command that asks for them; the attributes for an object's number, the list and its
// entries; and the function that lists.
struct Resource {
  uint16_t command;
  rdma_nldev_attr number;
  rdma_nldev_attr table;
  rdma_nldev_attr entry;
  Entries (*list)(const Exchange& exchange);
};
constexpr Resource kResources[] = {
    {RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_LQPN, RDMA_NLDEV_ATTR_RES_QP,
     RDMA_NLDEV_ATTR_RES_QP_ENTRY, list_qps},
    {RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_IDN, RDMA_NLDEV_ATTR_RES_CM_ID,
     RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, list_cm_ids},
    {RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQN, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
     list_cqs},
    {RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MRN, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY,
     list_mrs},
    {RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PDN, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY,
     list_pds},
    {RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTXN, RDMA_NLDEV_ATTR_RES_CTX,
     RDMA_NLDEV_ATTR_RES_CTX_ENTRY, list_contexts},
    {RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQN, RDMA_NLDEV_ATTR_RES_SRQ,
     RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, list_srqs},
};

// REQUIRES: the request's command is in kResources
const Resource& row_of(const Exchange& exchange) {
  return *std::ranges::find(kResources, exchange.request.command(), &Resource::command);
}

}  // namespace

Outcome get_summaries(Exchange& exchange) {
  return tell_devices(exchange, summarize);
}

Outcome get_resource(Exchange& exchange) {
  const Resource& resource = row_of(exchange);
  const auto number = exchange.request.u32(resource.number);
  if (!number) return refuse(EINVAL, "the request says not which one");
  for (const Entry& entry : resource.list(exchange)) {
    if (entry.number != *number || (exchange.port != 0 && entry.port != 0 && entry.port != exchange.port))
      continue;
    Attributes all = handle_of(exchange.device->link);
    all.append(entry.attributes);
    exchange.answer.message(all, false);
    return {};
  }
  return refuse(ENOENT, "there is none of this number");
}

// Lists the objects of one port if the request names a port, else all.
Outcome dump_resources(Exchange& exchange) {
  const Resource& resource = row_of(exchange);
  std::vector<Attributes> entries;
  for (const Entry& entry : resource.list(exchange)) {
    if (exchange.port != 0 && entry.port != exchange.port) continue;
    Attributes one;
    entries.push_back(one.put_nest(resource.entry, entry.attributes));
  }
  exchange.answer.table(handle_of(exchange.device->link), resource.table, entries);
  return {};
}

}  // namespace verbena::rdma_netlink
