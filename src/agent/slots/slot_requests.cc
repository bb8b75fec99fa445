// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/slot_requests.h"

#include <cerrno>

#include "agent/cm/refusals.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

constexpr const char* kTooOld =
    "the agent hands packets over to programs of this user, which this program's Verbena is too old for: "
    "start the program again";

}  // namespace

RequestResult<protocol::TakeSlotReply> SlotRequests::take_slot(const Lessee& client,
                                                               const protocol::TakeSlotRequest&) {
  const auto slot = slots_.lease(client);
  if (!slot) {
    const int error = slot.error().code;
    if (error == ENOSPC) return refuse(error, "all slots are lent");
    if (error == EDQUOT)
      return refuse(ENOSPC, "programs of this user have as many slots as are for one user");
    if (error == EBUSY)
      return refuse(error, "programs of this user hold the locks of their sockets: end them, or wait");
    return refuse(error, "no socket or status page could be made");
  }
  Reply<protocol::TakeSlotReply> reply;
  reply.message.index = slot->index;
  reply.message.wire = wire_of(*slot);
  reply.fds = {slot->page};
  if (reply.message.wire == protocol::SlotWire::kSocket) {
    reply.fds.push_back(slot->socket);
  } else if (reply.message.wire == protocol::SlotWire::kNone) {
    store_text(reply.message.no_wire_reason, wire_.no_wire_reason());
  } else if (client.protocol_version >= protocol::kFirstVersionWithForwarding) {
    reply.last_fd = wire_.take_receiver(slot->index);
  } else {
    reply.message.wire = protocol::SlotWire::kNone;
    [[maybe_unused]] const UniqueFd unused = wire_.take_receiver(slot->index);
    store_text(reply.message.no_wire_reason, kTooOld);
  }
  return reply;
}

RequestResult<> SlotRequests::keep_slot(const Lessee& client, const protocol::SlotRequest& request) {
  const auto kept = slots_.keep(request.index, client);
  if (!kept) return refuse(kept.error().code, "the slot is not known to be lent to this user");
  return {};
}

RequestResult<> SlotRequests::claim_slot(const Lessee& client, const protocol::ClaimSlotRequest& request) {
  const auto claimed = slots_.claim(request.index, request.secret, client);
  if (!claimed) return refuse(claimed.error().code, "the slot is not known to be lent to this process");
  return {};
}

RequestResult<> SlotRequests::return_slot(const Lessee& client, const protocol::SlotRequest& request) {
  const auto taken = slots_.take_back(request.index, client.session);
  if (!taken) return refuse(taken.error().code, "the slot is not lent to this process");
  return {};
}

}  // namespace verbena::agent
