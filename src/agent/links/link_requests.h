// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/links/link_publisher.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out clients' requests that read or change links (RDMA devices) or join multicast groups.
class LinkRequests {
 public:
  LinkRequests(LinkPublisher& links, const Wire& wire, uint16_t port)
      : links_(links), wire_(wire), port_(port) {}

  RequestResult<> get_links(const Lessee& client, const protocol::GetLinksRequest& request);
  // The next four methods change links. EPERM if the client's user is neither root nor the agent's own.
  RequestResult<> add_link(const Lessee& client, const protocol::LinkRequest& request);
  RequestResult<> rename_link(const Lessee& client, const protocol::RenameRequest& request);
  RequestResult<> delete_link(const Lessee& client, const protocol::LinkRequest& request);
  RequestResult<> set_peers(const Lessee& client, const protocol::PeersRequest& request);
  // Returns a new UDP socket that has joined the multicast group on the device. EINVAL if the address is not
  // multicast, ENETDOWN if the agent does not have UDP port 4791, ENODEV if there is no such device.
  RequestResult<> join_group(const Lessee& client, const protocol::GroupRequest& request);

 private:
  LinkPublisher& links_;
  const Wire& wire_;
  const uint16_t port_;
};

}  // namespace verbena::agent
