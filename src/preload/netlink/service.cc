// SPDX-License-Identifier: Apache-2.0
#include "preload/netlink/service.h"

#include "preload/netlink/exchange.h"

namespace verbena::rdma_netlink {
namespace {

// The arguments that a command needs: none, a device, or a port of a device. A dump may omit the port.
enum class About : uint8_t { kNothing, kDevice, kPort };

struct Command {
  uint16_t number;
  About about;
  Operation one;   // nullptr: not supported
  Operation dump;  // nullptr: not supported
};
constexpr std::array kCommands = std::to_array<Command>({
    {RDMA_NLDEV_CMD_GET, About::kDevice, get_devices, get_devices},
    {RDMA_NLDEV_CMD_SET, About::kDevice, set_device, nullptr},
    {RDMA_NLDEV_CMD_NEWLINK, About::kNothing, add_link, nullptr},
    {RDMA_NLDEV_CMD_DELLINK, About::kDevice, delete_link, nullptr},
    {RDMA_NLDEV_CMD_PORT_GET, About::kPort, get_port, get_port},
    {RDMA_NLDEV_CMD_SYS_GET, About::kNothing, get_system, nullptr},
    {RDMA_NLDEV_CMD_SYS_SET, About::kNothing, set_system, nullptr},
    {RDMA_NLDEV_CMD_RES_GET, About::kDevice, get_summaries, get_summaries},
    {RDMA_NLDEV_CMD_RES_QP_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_RES_CM_ID_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_RES_CQ_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_RES_MR_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_RES_PD_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_RES_CTX_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_RES_SRQ_GET, About::kDevice, get_resource, dump_resources},
    {RDMA_NLDEV_CMD_STAT_GET, About::kPort, get_statistics, dump_statistics},
    {RDMA_NLDEV_CMD_STAT_SET, About::kPort, set_statistics, nullptr},
    {RDMA_NLDEV_CMD_STAT_GET_STATUS, About::kPort, get_statistics_mode, nullptr},
});

// Finds the device and port that the request names.
Outcome look_up(About about, bool may_be_all, Exchange& exchange) {
  const Request& request = exchange.request;
  auto status = exchange.devices.status();
  if (!status) return tl::unexpected(std::move(status.error()));
  exchange.status = std::move(*status);
  auto& links = exchange.status.links;
  std::ranges::sort(links, {}, [](const control::LinkStatus& one) { return one.link.device_index; });
  if (may_be_all && request.wants_dump() && !request.has(RDMA_NLDEV_ATTR_DEV_INDEX)) return {};
  const auto index = request.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
  if (!index) return refuse(EINVAL, "the request names no device");
  const auto found =
      std::ranges::find_if(links, [&](const auto& one) { return one.link.device_index == *index; });
  if (found == links.end()) return refuse(EINVAL, "there is no device of this index");
  exchange.device = &*found;
  const auto port = request.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
  if (port && (*port == 0 || *port > kPorts)) return refuse(EINVAL, "the device has no such port");
  exchange.port = port.value_or(0);
  const bool needs_port = about == About::kPort && !request.wants_dump();
  if (needs_port && exchange.port == 0) return refuse(EINVAL, "the request names no port");
  return {};
}

Outcome carry_out(Exchange& exchange) {
  const Request& request = exchange.request;
  if (request.client() != RDMA_NL_NLDEV || request.command() >= RDMA_NLDEV_NUM_OPS) return refuse(EINVAL);
  const auto* const command = std::ranges::find(kCommands, request.command(), &Command::number);
  const bool is_known = command != kCommands.end();
  const Operation operation = !is_known ? nullptr : request.wants_dump() ? command->dump : command->one;
  if (operation == nullptr) return refuse(EOPNOTSUPP, "Verbena's devices have nothing to say to this");
  if (command->about != About::kNothing) {
    const bool may_be_all = operation == get_devices || operation == get_summaries;
    if (auto found = look_up(command->about, may_be_all, exchange); !found) return found;
  }
  return operation(exchange);
}

void answer_one(const Request::Header& header, std::span<const std::byte> payload, Devices& devices,
                Answer& answer) {
  if (header.type < NLMSG_MIN_TYPE) return answer.acknowledge(0, {});
  const auto request = Request::parse(header, payload);
  if (!request) return answer.acknowledge(request.error().code, "an attribute is malformed");
  Exchange exchange{.request = *request, .devices = devices, .answer = answer};
  if (const Outcome outcome = carry_out(exchange); !outcome) {
    return answer.acknowledge(outcome.error().code, outcome.error().text);
  }
  if (request->wants_dump()) return answer.done();
  if ((header.flags & NLM_F_ACK) != 0) answer.acknowledge(0, {});
}

}  // namespace

Attributes handle_of(const control::Link& link) {
  Attributes attributes;
  attributes.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, link.device_index);
  attributes.put_text(RDMA_NLDEV_ATTR_DEV_NAME, link.name);
  return attributes;
}

Outcome tell_devices(Exchange& exchange, Attributes (*describe)(const Exchange&, const control::Link&)) {
  if (exchange.request.wants_dump()) {
    for (const auto& device : exchange.status.links) {
      exchange.answer.message(describe(exchange, device.link), true);
    }
  } else {
    exchange.answer.message(describe(exchange, exchange.device->link), false);
  }
  return {};
}

std::vector<Bytes> Service::answer(std::span<const std::byte> datagram, uint32_t port) {
  std::vector<Bytes> all;
  while (datagram.size() >= sizeof(nlmsghdr)) {
    nlmsghdr message;
    std::memcpy(&message, datagram.data(), sizeof message);
    if (message.nlmsg_len < sizeof message || message.nlmsg_len > datagram.size()) break;
    const bool is_request = (message.nlmsg_flags & NLM_F_REQUEST) != 0;
    const bool is_control_without_answer =
        message.nlmsg_type < NLMSG_MIN_TYPE && (message.nlmsg_flags & NLM_F_ACK) == 0;
    if (is_request && !is_control_without_answer) {
      const Request::Header header{message.nlmsg_type, message.nlmsg_flags, message.nlmsg_seq};
      Answer answer(header, port);
      answer_one(header, datagram.subspan(sizeof message, message.nlmsg_len - sizeof message), devices_,
                 answer);
      for (Bytes& bytes : answer.take()) all.push_back(std::move(bytes));
    }
    datagram = datagram.subspan(std::min<size_t>(NLMSG_ALIGN(message.nlmsg_len), datagram.size()));
  }
  return all;
}

}  // namespace verbena::rdma_netlink
