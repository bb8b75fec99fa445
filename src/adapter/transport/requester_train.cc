// SPDX-License-Identifier: Apache-2.0
// The Middles of a long message, which go together (PacketTrain) where each is a packet of its own.
#include <algorithm>

#include "adapter/transport/requester.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {

using queues::SendWqe;

// How many packets from the next on are Middles that would all leave now, one by one, with no question to
// anybody in between: none is sent again, and the window, the pace and the budget hold them all. They end
// where one of them is to ask for an acknowledgement.
uint32_t Requester::middles_together(const SendWqe& wqe, uint32_t most) const {
  if (!flow_ || service_ != roce::Service::kRc || !is_data(wqe) || wqe.num_sge != 1 || wqe.is_inline())
    return 0;
  if (next_.is_before(highest_) || holds_new() || qp_.traces_packets() || sizes_.joined != 1) return 0;
  const auto index = static_cast<uint32_t>(next_ - wqe.first_psn);
  const uint32_t packets = packets_of(wqe, mtu());
  if (index == 0 || index + 2 >= packets || goes_with_first(wqe, index)) return 0;

  const uint32_t cost = full_packet();
  const uint32_t run = std::min(sizes_.run_bytes, window_ / 2);
  const int32_t may_follow = max_packets() - (next_ - unacked_);
  if (inflight_ + cost > window_ || since_ack_request_ >= asks_after(0) || may_follow <= 0) return 0;
  const uint32_t until_asked = run - since_ack_request_ % run;
  uint32_t count = std::min({most, packets - index - 1, (window_ - inflight_) / cost,
                             (until_asked + cost - 1) / cost, static_cast<uint32_t>(may_follow)});
  while (count > 1 && !flow_->may_send_after((count - 1) * cost, sending_at_)) count /= 2;
  return count;
}

// kFault: nothing was sent, as the memory of the next cannot be read.
SendStatus Requester::send_middles(SendWqe& wqe, uint32_t count, uint32_t& budget) {
  const uint32_t bytes = count * mtu();
  Pieces pieces;
  if (!gather(qp_.keys(), qp_.config().pd, wqe.sges(), offset_at(wqe, next_), bytes, 0, pieces)) {
    return SendStatus::kFault;
  }
  const bool asks = must_ask(count, bytes, false, cursor_);
  const TrainSent train = qp_.send_out(PacketTrain{.path = qp_.attributes().path,
                                                   .headers = {.opcode = middle_opcode(service_, wqe),
                                                               .ack_request = asks,
                                                               .destination = qp_.attributes().destination,
                                                               .psn = next_},
                                                   .payload = pieces.get().front().data(),
                                                   .packet_payload = mtu(),
                                                   .count = count,
                                                   .pins = &pins_,
                                                   .before_last = next_ + count == wqe.last_psn});
  if (train.packets == 0) return train.status;
  const bool asked = asks && train.packets == count;
  sent(wqe, next_ + train.packets, train.packets * mtu(), train.packets);
  note_question(asked, train.packets * full_packet());
  budget -= train.packets;
  return SendStatus::kSent;
}

}  // namespace verbena::transport
