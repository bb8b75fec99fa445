// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/simulation/host.h"

#include <algorithm>

namespace verbena::transport {

void Host::on_packet(const IncomingPacket& incoming) {
  const uint32_t index = incoming.packet.headers.destination.value() - kFirstQpn;
  if (index < qps_.size()) qps_[index]->qp->on_packet(incoming, network_.now());
}

TimePoint Host::deadline() const {
  TimePoint earliest = kNever;
  for (const auto& s : qps_) earliest = std::min(earliest, s->qp->deadline());
  return earliest;
}

bool Host::progress(TimePoint now) {
  constexpr uint32_t kMaxPackets = 64;
  port_.receive(*this, static_cast<uint32_t>(1 + random_.below(kMaxPackets)));
  bool more = false;
  for (const auto& s : qps_) {
    if (s->qp->deadline() <= now) {
      s->qp->on_timer(now);
      if (s->qp->deadline() <= now) complaint_ = "a timer that was run wants to be run again at once";
    }
    if (s->qp->has_urgent() || s->qp->has_acknowledgement()) more |= transmit(*s->qp, now);
  }
  if (random_.one_in(2)) port_.flush();
  return more;
}

bool Host::transmit(QueuePair& qp, TimePoint now) {
  const uint64_t mood = random_.next();
  if ((mood & 3) == 0 && qp.may_gather()) return true;
  const bool with_acknowledgements = (mood & 4) == 0;
  const auto budget = static_cast<uint32_t>((mood & 0x18) == 0 ? 1 + (mood >> 8) % 4 : 1 + (mood >> 8) % 256);
  const TransmitResult result = qp.transmit(now, budget, with_acknowledgements);
  if (result != TransmitResult::kIdle) return true;
  if (qp.has_urgent()) complaint_ = "idle, yet something urgent is left";
  if (with_acknowledgements && qp.has_acknowledgement()) complaint_ = "idle, yet an acknowledgement is left";
  return qp.has_acknowledgement();
}

}  // namespace verbena::transport
