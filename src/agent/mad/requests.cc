// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/requests.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "management/mad/subnet_management.h"

namespace verbena::agent {

RequestResult<protocol::MadPortReply> MadRequests::get_port(const Lessee&,
                                                            const protocol::DeviceRequest& request) {
  constexpr size_t kCapabilitiesAt = 20;
  const LinkFabric* fabric = dispatcher_.fabrics().find(request.device_index);
  if (fabric == nullptr) return refuse(ENODEV, "there is no such link");
  const mad::Node node{&fabric->subnet.own(), 1};
  const auto port = mad::attribute_of(fabric->subnet, node, mad::kPortInfo, 0);
  Reply<protocol::MadPortReply> reply;
  reply.message.lid = fabric->subnet.own().lid;
  reply.message.sm_lid = mad::Subnet::kSwitchLid;
  reply.message.capabilities = load_be<uint32_t>(&port.value()[kCapabilitiesAt]);
  return reply;
}

RequestResult<> MadRequests::open_port(const Lessee& client, const protocol::DeviceRequest& request) {
  auto opened =
      dispatcher_.open(request.device_index, client.uid, (request.flags & protocol::kMadLongMessages) != 0);
  if (!opened) return refuse(opened.error().code, "the port cannot be opened for management datagrams");
  Reply<> reply;
  reply.last_fd = std::move(*opened);
  return reply;
}

RequestResult<protocol::MadRegisterReply> MadRequests::add_agent(
    const Lessee& client, const protocol::MadRegisterRequest& request) {
  constexpr const char* kRefused = "no agent can be registered for these management datagrams";
  constexpr uint32_t kKnown = protocol::kMadUserRmpp | protocol::kMadKeepsNumber;
  if ((request.flags & ~kKnown) != 0) return refuse(EINVAL, kRefused);
  MadAgent agent;
  agent.port = request.port;
  agent.management_class = request.management_class;
  agent.class_version = request.class_version;
  agent.queue_pair = request.queue_pair;
  agent.rmpp_version = request.rmpp_version;
  agent.user_rmpp = (request.flags & protocol::kMadUserRmpp) != 0;
  agent.oui = request.oui;
  for (size_t method = 0; method < agent.methods.size(); ++method) {
    agent.methods.set(method, (request.method_masks[method / 64] >> method % 64 & 1) != 0);
  }
  std::optional<uint32_t> number;
  if ((request.flags & protocol::kMadKeepsNumber) != 0) number = request.agent;
  const auto added = dispatcher_.add_agent(client.uid, agent, number);
  if (!added) return refuse(added.error().code, kRefused);
  Reply<protocol::MadRegisterReply> reply;
  reply.message.agent = *added;
  return reply;
}

RequestResult<> MadRequests::remove_agent(const Lessee& client, const protocol::MadRegisterRequest& request) {
  return plain_reply(dispatcher_.remove_agent(client.uid, request.port, request.agent),
                     "there is no such agent");
}

}  // namespace verbena::agent
