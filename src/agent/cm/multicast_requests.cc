// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client_role.h"
#include "agent/cm/event_message.h"
#include "agent/cm/refusals.h"
#include "base/format.h"
#include "wire/roce/prefix.h"
#include "wire/roce/qpn.h"

namespace verbena::agent {
namespace {

constexpr uint8_t kHopLimit = 64;

}  // namespace

// RoCE has no subnet administration to ask. The group's MGID is its IP address, and the process that attaches
// a QP joins the group on the netdev.
EventOutcome MulticastRequests::join(const protocol::CmJoinRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (id->state != CmState::kBound && id->state != CmState::kAddressResolved) return wrong_state();
  if (id->qp_type != IBV_QPT_UD) return refuse(EINVAL, "groups are for RDMA_PS_UDP and RDMA_PS_IPOIB");
  if (!id->has_device()) return refuse(EINVAL, "the identifier has no device: bind it to a link's address");
  if (request.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return refuse(EINVAL, "no such way to join");
  if (!has_known_family(request.group)) return refuse(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  const roce::Address group = gid_of(request.group);
  if (!group.is_multicast() || request.group.family != id->source.family) {
    return refuse(EINVAL, verbena::format("{} is no multicast group, or not of the family of {}",
                                          roce::text_of(group), roce::text_of(gid_of(id->source))));
  }
  // After an agent's death, a program may not know whether it has joined already.
  const bool known = std::ranges::find(id->groups, request.multicast) != id->groups.end();
  if (!known) {
    if (!limits_.allows_group(id->groups.size())) return refuse(ENOMEM, "too many groups");
    id->groups.push_back(request.multicast);
    limits_.take_group();
  }

  protocol::CmEvent event = event_of(*id, manager(), RDMA_CM_EVENT_MULTICAST_JOIN);
  event.multicast = request.multicast;
  event.flags |= protocol::kCmHasParameters;
  event.parameters.qpn = roce::kMulticastQpn.value();
  event.parameters.qkey = RDMA_UDP_QKEY;
  event.route.destination = request.group;
  std::copy(group.bytes.begin(), group.bytes.end(), event.route.destination_gid);
  event.route.hop_limit = kHopLimit;
  event.route.traffic_class = id->type_of_service.value_or(0);
  return Done{event};
}

Outcome MulticastRequests::leave(const protocol::CmLeaveRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (std::erase(id->groups, request.multicast) == 0) return refuse(ENOENT, "no such group");
  limits_.give_back_groups(1);
  return {};
}

}  // namespace verbena::agent
