// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/transport/packet_io.h"
#include "adapter/transport/queue_pair.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// Attachment of a QP to a multicast group.
struct Attachment {
  QueuePair* qp = nullptr;
  // Whether to hold back the QP's own datagrams (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
  bool blocks_own = false;
};

// The QPs attached to a multicast group. Each gets a copy of the group's datagrams (IBTA volume 1, 10.5.2).
// Pure. Threads: the caller holds the shard's lock.
class MulticastMembers {
 public:
  // Attaches a QP. A QP may be attached several times, and must be detached as often. It still gets only one
  // copy of each datagram. Errors: ENOMEM.
  Result<void> attach(const Attachment& attachment);
  // Undoes one attach(). Returns false if the QP is not attached.
  bool detach(const QueuePair& qp);
  bool empty() const { return members_.empty(); }
  // Whether a QP takes datagrams with this Q_Key.
  bool has_qkey(uint32_t qkey) const {
    return std::ranges::any_of(
        members_, [=](const Member& member) { return member.attachment.qp->attributes().qkey == qkey; });
  }

  // Calls deliver(QueuePair&) for each QP that gets a copy of a packet to the group. Returns false if the
  // packet is invalid and no QP gets it. `is_ours(address)` tells whether an address belongs to this machine.
  template <class IsOurs, class Deliver>
  bool fan_out(const IncomingPacket& packet, IsOurs is_ours, Deliver deliver) const {
    // A packet to a group's address, but to a single QP, is invalid (IBTA volume 1, 9.6.1.2).
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
  // QPNs are unique within a machine only: another machine's datagram may have the member's QPN.
  static bool may_be_echo(const Attachment& member, const IncomingPacket& packet) {
    return member.blocks_own && packet.packet.headers.source == member.qp->config().qpn;
  }

  std::vector<Member> members_;
};

// Recognizes duplicates of multicast datagrams, which may arrive twice: over shared memory and over the wire.
// Either copy may be first, and either may be missing. Copies have the same sender QPN and PSN.
//
// Remembers the last kWindow packets of each sender, which are more than can wait in a socket. So a packet
// with an older PSN is no late copy: its sender has started again with other PSNs. Pure. Threads: the caller
// holds the shard's lock.
class MulticastCopies {
 public:
  static constexpr uint32_t kWindow = 1 << 15;
  static constexpr size_t kMaxSenders = 64;
  // A sender that was silent for this long makes room for another.
  static constexpr Duration kForgottenAfter = std::chrono::seconds(10);

  // How a copy has come: over shared memory or over the wire.
  enum class Way : uint8_t { kMemory, kWire };

  // Whether this sender is remembered, so that copies from it may have come over shared memory.
  bool knows(roce::Qpn sender) const {
    return std::ranges::any_of(senders_, [&](const auto& known) { return known->qpn == sender; });
  }
  // Notes that a copy of a packet has come. Returns true if the copy must be delivered, because it is the
  // first. Returns true only for copies from the wire if the sender cannot be remembered, because there are
  // kMaxSenders others or memory has run out.
  bool is_first(Way way, roce::Qpn sender, roce::Psn psn, TimePoint now);

 private:
  struct Sender {
    roce::Qpn qpn;
    roce::Psn newest;
    TimePoint heard;
    // Packets of which one copy has come, by its route. A packet has at most one bit.
    std::bitset<kWindow> by_memory;
    std::bitset<kWindow> by_wire;
  };
  Sender* find(roce::Qpn qpn, roce::Psn psn, TimePoint now);
  static void advance(Sender& sender, roce::Psn psn);

  std::vector<std::unique_ptr<Sender>> senders_;
};

}  // namespace verbena::transport
