// SPDX-License-Identifier: Apache-2.0
// Operations on devices, their ports, their counters, and the whole system.
#include <infiniband/verbs.h>

#include "adapter/objects/limits.h"
#include "control/model/agent_status.h"
#include "preload/netlink/exchange.h"

namespace verbena::rdma_netlink {
namespace {

using control::Link;
using control::LinkStatus;

// The kernel's enum ib_port_phys_state, as in ibv_query_port(3).
constexpr uint8_t kPhysicalPolling = 2;
constexpr uint8_t kPhysicalDisabled = 3;
constexpr uint8_t kPhysicalLinkUp = 5;

// Converts a GUID to a number: its first byte is the most significant one.
uint64_t number_of_guid(const Link& link) {
  uint64_t number = 0;
  for (const uint8_t byte : control::guid_of(link)) number = number << 8 | byte;
  return number;
}

Attributes describe(const Link& link) {
  Attributes device = handle_of(link);
  device.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPorts);
  device.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, adapter::kAllCapabilities);
  device.put_u64(RDMA_NLDEV_ATTR_NODE_GUID, number_of_guid(link));
  device.put_u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, number_of_guid(link));
  device.put_u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, IBV_NODE_CA);
  device.put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 0);
  device.put_text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
  return device;
}

Attributes describe_port(const LinkStatus& device) {
  const Link& link = device.link;
  const bool active = control::is_active(device);
  const uint8_t physical = active ? kPhysicalLinkUp : link.up ? kPhysicalPolling : kPhysicalDisabled;
  Attributes port = handle_of(link);
  port.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPorts);
  port.put_u8(RDMA_NLDEV_ATTR_PORT_STATE, active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
  port.put_u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, physical);
  port.put_u32(RDMA_NLDEV_ATTR_NDEV_INDEX, link.interface_index);
  port.put_text(RDMA_NLDEV_ATTR_NDEV_NAME, link.netdev);
  return port;
}

}  // namespace

Outcome get_devices(Exchange& exchange) {
  return tell_devices(exchange, [](const Exchange&, const Link& link) { return describe(link); });
}

Outcome set_device(Exchange& exchange) {
  const Request& request = exchange.request;
  if (const auto name = request.text(RDMA_NLDEV_ATTR_DEV_NAME)) {
    return exchange.devices.rename_link(exchange.device->link.name, *name);
  }
  if (request.has(RDMA_NLDEV_NET_NS_FD)) {
    return refuse(EOPNOTSUPP, "a link belongs to the namespace of its network device; move that");
  }
  if (const auto moderation = request.u8(RDMA_NLDEV_ATTR_DEV_DIM)) {
    return *moderation == 0 ? Outcome() : refuse(EOPNOTSUPP, "completion queues moderate as programs say");
  }
  return {};
}

Outcome add_link(Exchange& exchange) {
  const Request& request = exchange.request;
  const auto name = request.text(RDMA_NLDEV_ATTR_DEV_NAME);
  const auto type = request.text(RDMA_NLDEV_ATTR_LINK_TYPE);
  const auto netdev = request.text(RDMA_NLDEV_ATTR_NDEV_NAME);
  if (!name || !type || !netdev) return refuse(EINVAL, "a link has a name, a type and a network device");
  if (*type != "rxe") return refuse(EINVAL, "links are of type rxe, not '" + *type + "'");
  return exchange.devices.add_link(*name, *netdev);
}

Outcome delete_link(Exchange& exchange) {
  return exchange.devices.delete_link(exchange.device->link.name);
}

Outcome get_port(Exchange& exchange) {
  exchange.answer.message(describe_port(*exchange.device), exchange.request.wants_dump());
  return {};
}

// Reports exclusive mode (a device belongs to one network namespace) and that fork() needs no precautions.
Outcome get_system(Exchange& exchange) {
  Attributes system;
  system.put_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 0);
  system.put_u8(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
  exchange.answer.message(system, false);
  return {};
}

Outcome set_system(Exchange& exchange) {
  const auto shared = exchange.request.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE);
  if (!shared) return refuse(EINVAL);
  if (*shared == 0) return {};
  return refuse(EOPNOTSUPP, "a device is seen in the network namespace of its network device only");
}

namespace {

constexpr std::string_view kFolder = "hw_counters/";

// Returns the subject of a request for statistics: the attribute type of a resource; 0: the port.
uint32_t resource_of(const Request& request) {
  return request.u32(RDMA_NLDEV_ATTR_STAT_RES).value_or(0);
}

Attributes handle_of_port(const Exchange& exchange) {
  return handle_of(exchange.device->link).put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPorts);
}

// Responds with all counters of the port: their names, and what put(entry, counter) adds.
template <class Put>
Outcome tell_counters(Exchange& exchange, Put put) {
  Attributes table;
  for (const control::NamedCounter& counter : control::kNamedCounters) {
    if (!counter.path.starts_with(kFolder)) continue;
    Attributes entry;
    entry.put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, counter.path.substr(kFolder.size()));
    put(entry, counter);
    table.put_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, entry);
  }
  exchange.answer.message(handle_of_port(exchange).put_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, table), false);
  return {};
}

// Reports how QPs are bound to counters: each QP has its own counter, for which the protocol has no mode.
Outcome get_mode(Exchange& exchange) {
  Attributes mode = handle_of_port(exchange);
  exchange.answer.message(mode.put_u32(RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_NONE), false);
  return {};
}

Attributes describe_counter(const control::SlotStatus& slot, const control::QpNumbers& qp) {
  Attributes lqpn, qps, table, entry;
  lqpn.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, qp.qpn);
  qps.put_nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, lqpn);
  for (size_t i = 0; i < qp.counters.size(); ++i) {
    Attributes counter;
    counter.put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, transport::kQpCounterNames[i]);
    counter.put_u64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, qp.counters[i]);
    table.put_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, counter);
  }
  entry.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPorts);
  entry.put_u32(RDMA_NLDEV_ATTR_STAT_COUNTER_ID, qp.qpn);
  entry.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<uint8_t>(qp.type));
  put_process(entry, slot.pid, slot.program);
  entry.put_nest(RDMA_NLDEV_ATTR_RES_QP, qps);
  entry.put_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, table);
  return Attributes().put_nest(RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY, entry);
}

Outcome dump_qp_counters(Exchange& exchange) {
  std::vector<Attributes> entries;
  const control::Link& link = exchange.device->link;
  for (const control::SlotStatus& slot : exchange.status.slots) {
    for (const control::QpNumbers& qp : slot.qps) {
      if (qp.device_index == link.device_index) entries.push_back(describe_counter(slot, qp));
    }
  }
  exchange.answer.table(handle_of(link), RDMA_NLDEV_ATTR_STAT_COUNTER, entries);
  return {};
}

// Lists the memory regions without counters: there are none for regions.
Outcome dump_regions(Exchange& exchange) {
  std::vector<Attributes> entries;
  const control::Link& link = exchange.device->link;
  for (const control::SlotStatus& slot : exchange.status.slots) {
    for (const control::ObjectNumbers& object : slot.objects) {
      if (object.kind != protocol::ObjectKind::kMr || object.device_index != link.device_index) continue;
      Attributes number;
      number.put_u32(RDMA_NLDEV_ATTR_RES_MRN, object.number);
      entries.push_back(Attributes().put_nest(RDMA_NLDEV_ATTR_RES_MR_ENTRY, number));
    }
  }
  exchange.answer.table(handle_of(link), RDMA_NLDEV_ATTR_RES_MR, entries);
  return {};
}

}  // namespace

Outcome get_statistics(Exchange& exchange) {
  if (!exchange.request.has(RDMA_NLDEV_ATTR_STAT_RES)) {
    return tell_counters(exchange, [&](Attributes& entry, const control::NamedCounter& counter) {
      entry.put_u64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, counter.value(exchange.device->counters));
    });
  }
  if (resource_of(exchange.request) != RDMA_NLDEV_ATTR_RES_QP) return refuse(EINVAL);
  if (exchange.request.has(RDMA_NLDEV_ATTR_STAT_MODE)) return get_mode(exchange);
  return refuse(EOPNOTSUPP, "each QP is counted, always, by a counter of its own");
}

Outcome dump_statistics(Exchange& exchange) {
  switch (resource_of(exchange.request)) {
    case RDMA_NLDEV_ATTR_RES_QP:
      return dump_qp_counters(exchange);
    case RDMA_NLDEV_ATTR_RES_MR:
      return dump_regions(exchange);
    default:
      return refuse(EINVAL);
  }
}

// Accepts "auto off", which is the state, and an empty list of optional counters: there are none.
Outcome set_statistics(Exchange& exchange) {
  const Request& request = exchange.request;
  if (const auto mode = request.u32(RDMA_NLDEV_ATTR_STAT_MODE)) {
    const auto mask = request.u32(RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK).value_or(0);
    if (*mode == RDMA_COUNTER_MODE_AUTO && mask == 0) return {};
    return refuse(EOPNOTSUPP, "each QP is counted, always, by a counter of its own");
  }
  if (!request.has(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS)) return refuse(EINVAL);
  if (request.nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS).empty()) return {};
  return refuse(EINVAL, "there are no optional counters: all are on");
}

// Lists the counters, none of which can be switched off.
Outcome get_statistics_mode(Exchange& exchange) {
  uint32_t index = 0;
  return tell_counters(exchange, [&](Attributes& entry, const control::NamedCounter&) {
    entry.put_u32(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX, index++);
  });
}

}  // namespace verbena::rdma_netlink
