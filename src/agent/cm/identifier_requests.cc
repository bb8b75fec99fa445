// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/client_role.h"
#include "agent/cm/refusals.h"

namespace verbena::agent {

Outcome IdentifierRequests::open_channel(const protocol::CmChannelRequest& request, ClientFile events) {
  return channels_.open(request, std::move(events));
}

// REQUIRES: the channel has no identifiers (CmClient::close_little_by_little() destroys them)
Outcome IdentifierRequests::close_channel(const protocol::CmChannelRequest& request) {
  if (channels_.find(request.channel) == nullptr) return refuse(ENOENT, "no such channel");
  channels_.close(request.channel);
  return {};
}

Outcome IdentifierRequests::create(const protocol::CmCreateRequest& request) {
  const auto made = identifiers_.make(request);
  if (!made) return tl::unexpected(made.error());
  return {};
}

DestroyOutcome IdentifierRequests::destroy(const protocol::CmIdRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (EventChannel* channel = channels_.find(id->channel)) {
    id->events_sent -= static_cast<uint32_t>(channel->drop_events(id->number));
  }
  const uint32_t events = id->events_sent;
  if (id->listening) service_.listener_ended(*id);
  identifiers_.erase(*id);
  return Destroyed{events};
}

Outcome IdentifierRequests::set_option(const protocol::CmOptionRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  const bool is_new = id->state == CmState::kIdle;
  switch (request.option) {
    case RDMA_OPTION_ID_TOS:
      if (request.value > 0xff) return refuse(EINVAL, "no type of service");
      id->type_of_service = static_cast<uint8_t>(request.value);
      return {};
    case RDMA_OPTION_ID_REUSEADDR:
      if (!is_new && (request.value == 0 || id->state == CmState::kListen)) return wrong_state();
      id->reuse_address = request.value != 0;
      return {};
    case RDMA_OPTION_ID_AFONLY:
      if (!is_new && id->state != CmState::kBound) return wrong_state();
      id->own_family_only = request.value != 0;
      id->family_option_set = true;
      return {};
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      const bool has_acks = id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_SEND;
      if (!has_acks || request.value > 31) return refuse(EINVAL, "no ACK timeout, or not of this QP");
      id->ack_timeout = static_cast<uint8_t>(request.value);
      return {};
    }
    default:
      return refuse(ENOSYS, "no such option");
  }
}

Outcome IdentifierRequests::migrate(const protocol::CmMigrateRequest& request) {
  CmIdentifier* id = find(request.id);
  EventChannel* to = channels_.find(request.channel);
  if (id == nullptr || to == nullptr) return refuse(ENOENT, "no such identifier or channel");
  if (EventChannel* from = channels_.find(id->channel)) {
    from->move_events(id->number, *to);
    --from->identifiers;
  }
  ++to->identifiers;
  id->channel = request.channel;
  if (id->listening_state) id->listening_state->unseen.clear();  // numbers of the other channel
  return {};
}

}  // namespace verbena::agent
