// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/links/link_publisher.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out clients' requests for links.
class LinkRequests {
 public:
  LinkRequests(LinkPublisher& links, const Wire& wire, uint16_t port)
      : links_(links), wire_(wire), port_(port) {}

  RequestResult<> get_links(const Lessee& client, const protocol::GetLinksRequest& request);
  // EPERM: the client's user is neither root nor the agent's own.
  RequestResult<> add_link(const Lessee& client, const protocol::LinkRequest& request);
  RequestResult<> rename_link(const Lessee& client, const protocol::RenameRequest& request);
  RequestResult<> delete_link(const Lessee& client, const protocol::LinkRequest& request);
  RequestResult<> set_peers(const Lessee& client, const protocol::PeersRequest& request);
  // Returns a socket of a multicast group. EINVAL: the address is not multicast. ENETDOWN: there is no wire.
  // ENODEV: there is no such device.
  RequestResult<> join_group(const Lessee& client, const protocol::GroupRequest& request);

 private:
  LinkPublisher& links_;
  const Wire& wire_;
  const uint16_t port_;
};

}  // namespace verbena::agent
