// SPDX-License-Identifier: Apache-2.0
// Requests that the requester carries out in the peer's memory by itself (route.h).
#include <algorithm>
#include <span>
#include <utility>

#include "adapter/transport/requester.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Operation;

// What is done at once, with the shard's lock held.
constexpr uint32_t kMaxAtOnce = 1 << 20;
// What counts as one packet in the shard's budget.
constexpr uint32_t kBytesPerPacket = 4096;
// Where requests follow each other without a pause, there is never a moment in which nothing is under way.
// After so many that might have gone direct one such moment is made, if it pays.
constexpr uint32_t kMaxInARow = 64;

bool might_go_direct(const SendWqe& wqe) {
  if (is_atomic(wqe)) return wqe.length >= sizeof(uint64_t);
  return (is_read(wqe) || wqe.opcode == IBV_WR_RDMA_WRITE) && wqe.length > 0 &&
         wqe.length <= kMaxMessageBytes;
}

}  // namespace

// Only when nothing is under way that it could overtake, and when the peer has answered a packet: then it is
// connected to us as we are to it. What goes before and what comes after finds the request done.
bool Requester::may_go_direct(const SendWqe& wqe) const {
  if (service_ != roce::Service::kRc || !heard_) return false;
  if (cursor_ != head_ || has_outstanding()) return false;
  return might_go_direct(wqe);
}

[[gnu::always_inline]] inline bool Requester::copy_directly(SendWqe& wqe, const PeerRange& range,
                                                            uint32_t& budget) {
  const QpConfig& config = qp_.config();
  const uint32_t offset = std::exchange(direct_bytes_, 0);
  const uint32_t bytes = std::min(wqe.length - offset, kMaxAtOnce);
  Pieces pieces;
  if (wqe.is_inline()) {
    pieces.add({wqe.inline_data(), wqe.length});
  } else if (!gather(qp_.keys(), config.pd, wqe.sges(), offset, bytes,
                     is_read(wqe) ? IBV_ACCESS_LOCAL_WRITE : 0, pieces)) {
    return false;
  }
  DirectAccess& direct = *qp_.route().direct;
  const bool done = is_read(wqe) ? direct.read(range, offset, bytes, pieces.get())
                                 : direct.write(range, offset, bytes, pieces.get());
  if (!done) return false;

  const uint32_t packets = packets_for(bytes, mtu());
  qp_.count(kSentPackets, is_read(wqe) ? 1 : packets);
  qp_.count(is_read(wqe) ? kReceivedBytes : kSentBytes, bytes);
  if (is_read(wqe)) qp_.count(kReceivedPackets, packets);
  count_direct_octets(is_read(wqe), bytes, packets);
  budget -= std::min(budget, 1 + bytes / kBytesPerPacket);
  if (offset + bytes < wqe.length) {
    direct_bytes_ = offset + bytes;
  } else {
    done_directly(wqe);
  }
  return true;
}

// A request that is carried out directly counts as the packets that it stands for.
void Requester::count_direct_octets(bool is_read, uint32_t bytes, uint32_t packets) {
  const roce::Path& path = qp_.attributes().path;
  const auto opcode = [&](Operation operation) { return roce::make_opcode(service_, operation); };
  if (is_read) {
    qp_.count(kSentOctets, octets_of(path, opcode(Operation::kReadRequest), 0));
    qp_.count(kReceivedOctets, octets_of(path, opcode(Operation::kReadResponseFirst), bytes, packets));
  } else {
    qp_.count(kSentOctets, octets_of(path, opcode(Operation::kWriteFirst), bytes, packets));
  }
}

bool Requester::change_directly(SendWqe& wqe, PeerRange range, uint32_t& budget) {
  const QpConfig& config = qp_.config();
  range.length = sizeof(uint64_t);
  const bool compares = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  const auto before = qp_.route().direct->change(range, {.compares = compares,
                                                         .compare = compares ? wqe.compare_add : 0,
                                                         .swap_add = compares ? wqe.swap : wqe.compare_add});
  if (!before) return false;
  qp_.count(kSentPackets);
  qp_.count(kReceivedPackets);
  const roce::Path& path = qp_.attributes().path;
  const Operation operation = compares ? Operation::kCompareSwap : Operation::kFetchAdd;
  qp_.count(kSentOctets, octets_of(path, roce::make_opcode(service_, operation), 0));
  qp_.count(kReceivedOctets, octets_of(path, roce::make_opcode(service_, Operation::kAtomicAcknowledge), 0));
  budget -= 1;
  const ScatterResult stored =
      scatter(qp_.keys(), config.pd, wqe.sges(), 0, std::as_bytes(std::span(&*before, 1)));
  done_directly(wqe, stored == ScatterResult::kDone ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
  return true;
}

// False: it is to go by packets. If it has been done in part, that is all of it.
bool Requester::go_direct(SendWqe& wqe, uint32_t& budget) {
  const QpAttributes& attributes = qp_.attributes();
  const PeerRange range{.connection = &connection_,
                        .address = wqe.remote_address,
                        .rkey = wqe.rkey,
                        .length = wqe.length,
                        .path = &attributes.path,
                        .next_psn = next_new_,
                        .path_mtu = mtu()};
  return is_atomic(wqe) ? change_directly(wqe, range, budget) : copy_directly(wqe, range, budget);
}

// It has no PSNs.
void Requester::done_directly(SendWqe& wqe, ibv_wc_status status) {
  wqe.first_psn = next_new_;
  wqe.last_psn = next_new_ - 1;
  ++assigned_;
  if (status == IBV_WC_SUCCESS) {
    executed(wqe);
  } else {
    ++cursor_;
    fail_head(status);
  }
}

bool Requester::must_drain_for_direct(const SendWqe& wqe) {
  if (!might_go_direct(wqe)) {
    one_sided_run_ = 0;
    one_sided_bytes_ = 0;
    return false;
  }
  one_sided_bytes_ += wqe.length;
  if (++one_sided_run_ % kMaxInARow != 0 || !heard_ || service_ != roce::Service::kRc) return false;
  const uint64_t bytes = std::exchange(one_sided_bytes_, 0);
  return has_outstanding() && !holds_new() &&
         qp_.route().direct->is_best_for({bytes, wqe.rkey, wqe.length, is_read(wqe)});
}

void Requester::drain_for_direct() {
  drains_for_direct_ = true;
  ask_for_the_last();
}

}  // namespace verbena::transport
