// SPDX-License-Identifier: Apache-2.0
#include "agent/slot_requests.h"

#include <cerrno>

#include "agent/cm/refusals.h"
#include "protocol/text.h"

namespace verbena::agent {

RequestResult<protocol::TakeSlotReply> SlotRequests::take_slot(const Borrower& client,
                                                               const protocol::TakeSlotRequest&) {
  const auto slot = slots_.lend(client);
  if (!slot) {
    const int error = slot.error().code;
    return refuse(error, error == ENOSPC ? "all slots are lent" : "no status page could be made");
  }
  Reply<protocol::TakeSlotReply> reply;
  reply.message.index = slot->index;
  reply.message.has_socket = slot->socket >= 0 ? 1 : 0;
  reply.fds = {slot->page};
  if (slot->socket >= 0) {
    reply.fds.push_back(slot->socket);
  } else {
    protocol::store_text(reply.message.no_wire_reason, wire_.no_wire_reason());
  }
  return reply;
}

RequestResult<> SlotRequests::keep_slot(const Borrower& client, const protocol::SlotRequest& request) {
  const auto kept = slots_.keep(request.index, client);
  if (!kept) return refuse(kept.error().code, "the slot is not known to be lent to this user");
  return {};
}

RequestResult<> SlotRequests::return_slot(const Borrower& client, const protocol::SlotRequest& request) {
  const auto taken = slots_.take_back(request.index, client.session);
  if (!taken) return refuse(taken.error().code, "the slot is not lent to this process");
  return {};
}

}  // namespace verbena::agent
