// SPDX-License-Identifier: Apache-2.0
// Operations on devices, their ports, and the whole system.
#include <cerrno>

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

Outcome get_device(Exchange& exchange) {
  exchange.answer.message(describe(exchange.device->link), false);
  return {};
}

Outcome dump_devices(Exchange& exchange) {
  for (const LinkStatus& device : exchange.status.links) {
    exchange.answer.message(describe(device.link), true);
  }
  return {};
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
  exchange.answer.message(describe_port(*exchange.device), false);
  return {};
}

Outcome dump_ports(Exchange& exchange) {
  exchange.answer.message(describe_port(*exchange.device), true);
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

}  // namespace verbena::rdma_netlink
