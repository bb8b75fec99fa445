// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "adapter/transport/packet_io.h"
#include "adapter/transport/queue_pair.h"
#include "base/result.h"

namespace verbena::transport {

// How a QP is attached to a multicast group.
struct Attachment {
  QueuePair* qp = nullptr;
  // What it sent itself is not for it (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
  bool blocks_own = false;
};

// The QPs that are attached to a multicast group: each of them gets a copy of its datagrams
// (IBTA volume 1, 10.5.2). Pure; for the shard's lock holder.
class MulticastMembers {
 public:
  // A QP may be attached several times, and detached as often; it is given one copy. ENOMEM
  Result<void> attach(const Attachment& attachment);
  // False: it is not attached.
  bool detach(const QueuePair& qp);
  bool empty() const { return members_.empty(); }

  // Calls deliver(QueuePair&) for each QP that is to have a copy of a packet that came to the group. False:
  // the packet is for nobody. `is_ours(address)` says whether an address is this machine's.
  template <class IsOurs, class Deliver>
  bool fan_out(const IncomingPacket& packet, IsOurs is_ours, Deliver deliver) const {
    // To a group's address, and for one QP: no such packet is valid (IBTA volume 1, 9.6.1.2).
    if (packet.packet.headers.destination != roce::kMulticastQpn) return false;
    for (const Member& member : members_) {
      if (!may_be_echo(member.attachment, packet) || !is_ours(packet.path.source)) {
        deliver(*member.attachment.qp);
      }
    }
    return true;
  }

 private:
  struct Member {
    Attachment attachment;
    uint32_t times = 1;
  };
  std::vector<Member>::iterator find(const QueuePair& qp);
  // A QPN is one machine's: another's datagram may bear the same.
  static bool may_be_echo(const Attachment& member, const IncomingPacket& packet) {
    return member.blocks_own && packet.packet.headers.source == member.qp->config().qpn;
  }

  std::vector<Member> members_;
};

}  // namespace verbena::transport
