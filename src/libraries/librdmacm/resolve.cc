// SPDX-License-Identifier: Apache-2.0
// Binding, resolving addresses and routes, and listening.
#include <cerrno>
#include <cstring>
#include <string>

#include "base/format.h"
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/calls.h"
#include "libraries/librdmacm/events.h"
#include "libraries/librdmacm/path.h"

namespace {

using namespace verbena::rdmacm;
using verbena::protocol::CmAddressReply;
using verbena::protocol::MessageType;

// Stores the addresses in the agent's reply, without waiting for the event.
int take_over(Identifier& identifier, const verbena::Result<CmAddressReply>& reply) {
  if (!reply) return reply.error().code;
  return error_of(set_path(identifier, reply->route));
}

std::string wrong_family(const sockaddr* address) {
  if (address == nullptr) return "is null";
  return verbena::format("is of family {}, and only AF_INET ({}) and AF_INET6 ({}) are supported",
                         address->sa_family, AF_INET, AF_INET6);
}

}  // namespace

VERBENA_ABI int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  return answer_for(id, [&](Identifier& identifier) {
    if (address_length(address) == 0) return because(EINVAL, "addr {}", wrong_family(address));
    verbena::protocol::CmBindRequest request{};
    request.address = address_of(address);
    return take_over(identifier, identifier.process.agent.call<CmAddressReply>(
                                     identifier, MessageType::kCmBind, request, State::kBound));
  });
}

VERBENA_ABI int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) {
  return answer_for(id, [&](Identifier& identifier) {
    const socklen_t length = address_length(destination);
    if (length == 0) return because(EINVAL, "dst_addr {}", wrong_family(destination));
    if (source != nullptr && address_length(source) == 0)
      return because(EINVAL, "src_addr {}", wrong_family(source));
    verbena::protocol::CmResolveRequest request{};
    request.timeout_ms = static_cast<uint32_t>(timeout_ms);
    request.source = address_of(source);
    request.destination = address_of(destination);
    // Preliminary: the event has more exact data, and may arrive before the reply.
    std::memcpy(&identifier.route.addr.dst_storage, destination, length);
    const auto asked = identifier.process.agent.call<CmAddressReply>(
        identifier, MessageType::kCmResolveAddress, request, State::kResolvingAddress);
    return asked ? complete(identifier) : asked.error().code;
  });
}

VERBENA_ABI int rdma_resolve_route(rdma_cm_id* id, int) {
  return answer_for(id, [&](Identifier& identifier) {
    const auto asked = identifier.process.agent.call(
        identifier, MessageType::kCmResolveRoute, verbena::protocol::CmIdRequest{}, State::kResolvingRoute);
    return asked ? complete(identifier) : asked.error().code;
  });
}

VERBENA_ABI int rdma_listen(rdma_cm_id* id, int backlog) {
  return answer_for(id, [&](Identifier& identifier) {
    verbena::protocol::CmListenRequest request{};
    request.backlog = backlog > 0 ? static_cast<uint32_t>(backlog) : 0;
    {
      const std::lock_guard lock(identifier.mutex);
      identifier.backlog = request.backlog;
    }
    return take_over(identifier, identifier.process.agent.call<CmAddressReply>(
                                     identifier, MessageType::kCmListen, request, State::kListening));
  });
}

VERBENA_ABI in_port_t rdma_get_src_port(rdma_cm_id* id) {
  return id != nullptr ? port_of(&id->route.addr.src_addr) : 0;
}

VERBENA_ABI in_port_t rdma_get_dst_port(rdma_cm_id* id) {
  return id != nullptr ? port_of(&id->route.addr.dst_addr) : 0;
}
