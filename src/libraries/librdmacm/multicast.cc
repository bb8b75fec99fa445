// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/calls.h"

namespace {

using namespace verbena::rdmacm;
using verbena::protocol::CmJoinRequest;
using verbena::protocol::CmLeaveRequest;
using verbena::protocol::MessageType;

void forget(Identifier& identifier, uint32_t number) {
  const std::lock_guard lock(identifier.mutex);
  std::erase_if(identifier.memberships, [&](const Membership& each) { return each.number == number; });
}

int join(Identifier& identifier, const sockaddr* address, uint32_t flags, void* context) {
  const socklen_t length = address_length(address);
  if (length == 0) return because(EINVAL, "addr is null, or its family is not known");
  Membership membership{};
  membership.number = identifier.process.identifiers.draw_number();
  membership.context = context;
  membership.join_flags = flags;
  std::memcpy(&membership.address, address, length);
  {
    const std::lock_guard lock(identifier.mutex);
    identifier.memberships.push_front(membership);
  }
  CmJoinRequest request{};
  request.multicast = membership.number;
  request.join_flags = flags;
  request.group = address_of(address);
  const auto asked = identifier.process.agent.call(identifier, MessageType::kCmJoin, request);
  if (!asked) {
    forget(identifier, membership.number);
    return asked.error().code;
  }
  return complete(identifier);
}

// Finds a membership by the application's address, compared byte by byte, as rdma-core's librdmacm does.
std::optional<Membership> find(Identifier& identifier, const sockaddr* address, socklen_t length) {
  const std::lock_guard lock(identifier.mutex);
  for (const Membership& each : identifier.memberships) {
    if (std::memcmp(&each.address, address, length) == 0) return each;
  }
  return std::nullopt;
}

int leave(Identifier& identifier, const sockaddr* address) {
  const socklen_t length = address_length(address);
  if (length == 0) return because(EINVAL, "addr is null, or its family is not known");
  auto membership = find(identifier, address, length);
  if (!membership) {
    sockaddr_storage group{};
    std::memcpy(&group, address, length);
    return because(EADDRNOTAVAIL, "id has not joined {}, or has left it", text_of(group));
  }
  if (identifier.qp != nullptr && membership->joined &&
      membership->join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) {
    ibv_detach_mcast(identifier.qp, &membership->group, membership->lid);
  }
  CmLeaveRequest request{};
  request.multicast = membership->number;
  const auto left = identifier.process.agent.call(identifier, MessageType::kCmLeave, request);
  const auto is_its = [&](const verbena::protocol::CmEvent& event) {
    return event.multicast == membership->number;
  };
  [[maybe_unused]] const auto undelivered = identifier.events->take(is_its);
  {
    std::unique_lock lock(identifier.mutex);
    const Membership* const found = identifier.find_membership(membership->number);
    identifier.acknowledged_one.wait(lock, [&] { return found->acknowledged >= found->delivered; });
  }
  forget(identifier, membership->number);
  return left ? 0 : left.error().code;
}

}  // namespace

VERBENA_ABI int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  return answer_for(id, [&](Identifier& identifier) {
    return join(identifier, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
  });
}

VERBENA_ABI int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes, void* context) {
  return answer_for(id, [&](Identifier& identifier) {
    constexpr uint32_t kBoth = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if (attributes == nullptr) return because(EINVAL, "mc_join_attr is null");
    if (attributes->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
      return because(ENOTSUP, "comp_mask {:#x} has bits that are unknown here", attributes->comp_mask);
    if ((attributes->comp_mask & kBoth) != kBoth)
      return because(EINVAL, "comp_mask {:#x} lacks RDMA_CM_JOIN_MC_ATTR_ADDRESS or _JOIN_FLAGS",
                     attributes->comp_mask);
    if (attributes->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
      return because(EINVAL, "join_flags {:#x} are none of enum rdma_cm_mc_join_flags",
                     attributes->join_flags);
    return join(identifier, attributes->addr, attributes->join_flags, context);
  });
}

VERBENA_ABI int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) {
  return answer_for(id, [&](Identifier& identifier) { return leave(identifier, address); });
}
