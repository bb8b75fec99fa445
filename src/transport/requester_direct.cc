// SPDX-License-Identifier: Apache-2.0
// Requests that the requester carries out in the peer's memory by itself (direct_access.h).
#include <algorithm>

#include "transport/requester.h"
#include "transport/send_request.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;

// What is done at once, with the shard's lock held.
constexpr uint32_t kMostAtOnce = 1 << 20;
// What counts as one packet in the shard's budget.
constexpr uint32_t kBytesPerPacket = 4096;
// Longer WRITEs are faster by packets, which both sides copy at once.
constexpr uint32_t kMostWritten = 4096;

}  // namespace

// Only when nothing is under way that it could overtake, and when the peer has answered a packet: then it is
// connected to us as we are to it. What goes before and what comes after finds the request done.
bool Requester::may_go_direct(const SendWqe& wqe) const {
  if (qp_.route().direct == nullptr || service_ != roce::Service::kRc || !heard_) return false;
  if (cursor_ != assigned_ || cursor_ != head_ || has_outstanding()) return false;
  if (wqe.length == 0 || wqe.length > kMaxMessageBytes) return false;
  return is_read(wqe) || (wqe.opcode == IBV_WR_RDMA_WRITE && wqe.length <= kMostWritten);
}

// False: it is to go by packets. Of a READ that has been done in part that is all of it.
bool Requester::go_direct(SendWqe& wqe, uint32_t& budget) {
  const QpAttributes& attributes = qp_.attributes();
  const QpConfig& config = qp_.config();
  const PeerRange range{.from = config.qpn,
                        .to = attributes.destination,
                        .first_psn = attributes.send_psn,
                        .rkey = wqe.rkey,
                        .address = wqe.remote_address,
                        .length = wqe.length,
                        .path = &attributes.path,
                        .next_psn = next_new_,
                        .path_mtu = mtu()};
  const uint32_t offset = std::exchange(direct_bytes_, 0);
  const uint32_t bytes = std::min(wqe.length - offset, kMostAtOnce);
  Pieces pieces;
  if (wqe.is_inline()) {
    pieces.add({wqe.inline_data(), wqe.length});
  } else if (!gather(*config.keys, config.pd, wqe.sges(), offset, bytes,
                     is_read(wqe) ? IBV_ACCESS_LOCAL_WRITE : 0, pieces)) {
    return false;
  }
  DirectAccess& direct = *qp_.route().direct;
  const bool done =
      is_read(wqe) ? direct.read(range, offset, bytes, pieces.get()) : direct.write(range, pieces.get());
  if (!done) return false;

  const uint32_t packets = packets_for(bytes, mtu());
  qp_.count(kSentPackets, is_read(wqe) ? 1 : packets);
  qp_.count(is_read(wqe) ? kReceivedBytes : kSentBytes, bytes);
  if (is_read(wqe)) qp_.count(kReceivedPackets, packets);
  budget -= std::min(budget, 1 + bytes / kBytesPerPacket);
  if (offset + bytes < wqe.length) {
    direct_bytes_ = offset + bytes;
    return true;
  }
  // It has no PSNs.
  wqe.first_psn = next_new_;
  wqe.last_psn = next_new_ - 1;
  ++assigned_;
  executed(wqe);
  return true;
}

}  // namespace verbena::transport
