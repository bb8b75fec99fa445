// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/simulated_network.h"

#include <algorithm>
#include <cassert>

namespace verbena::net {
namespace {

// Ethernet, IPv4 and UDP.
constexpr uint32_t kHeaderBytes = 14 + 20 + 8;
// Bytes of a packet on the wire besides its UDP payload, including Ethernet's preamble, check sequence and
// gap.
constexpr uint32_t kFramingBytes = kHeaderBytes + 24;
constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

SimulatedPort& SimulatedNetwork::add_port(const roce::Address& address) {
  assert(port_at(address) == nullptr);
  return *ports_.emplace_back(std::make_unique<SimulatedPort>(*this, address));
}

SimulatedPort* SimulatedNetwork::port_at(const roce::Address& address) const {
  for (const auto& port : ports_) {
    if (port->address() == address) return port.get();
  }
  return nullptr;
}

TimePoint SimulatedNetwork::next_arrival() const {
  TimePoint next = kNever;
  for (const auto& port : ports_) next = std::min(next, port->pending_.next());
  return next;
}

void SimulatedNetwork::leave(SimulatedPort& port, const roce::Address& group) {
  std::erase(memberships_, Membership{&port, group});
}

void SimulatedNetwork::dispatch(SimulatedPort& from, Frame* frame) {
  ++counters_.sent;
  if (frame->path.destination.is_multicast()) return dispatch_to_group(from, frame);
  carry(from, port_at(frame->path.destination), frame);
}

void SimulatedNetwork::dispatch_to_group(SimulatedPort& from, Frame* frame) {
  for (const Membership& membership : memberships_) {
    if (membership.group == frame->path.destination) carry(from, membership.port, copy_of(*frame));
  }
  frames_.put(frame);
}

void SimulatedNetwork::carry(SimulatedPort& from, SimulatedPort* to, Frame* frame) {
  if (to == nullptr || from.isolated_ || to->isolated_) return lose(frame, counters_.cut_off);
  if (from.link_) return carry_by_link(from, *to, frame);

  TimePoint leaves = now_;
  if (conditions_.bytes_per_second != 0) {
    const uint64_t rate = conditions_.bytes_per_second;
    const TimePoint free = std::max(from.leaves_at_, now_);
    const auto waiting = static_cast<uint64_t>((free - now_).count());
    if (waiting * rate / kNanosecondsPerSecond > conditions_.queue_bytes)
      return lose(frame, counters_.overflowed);
    from.leaves_at_ = free + Duration(uint64_t{frame->length + kFramingBytes} * kNanosecondsPerSecond / rate);
    leaves = from.leaves_at_;
  }
  const TimePoint at = leaves + conditions_.delay + up_to(conditions_.jitter);
  const TimePoint in_order = std::max(at, to->pending_.latest());

  // One draw decides, as usually nothing happens.
  const auto fate = static_cast<uint32_t>(random_.below(1'000'000));
  uint32_t limit = conditions_.loss;
  if (fate < limit) return lose(frame, counters_.lost);
  if (fate < (limit += conditions_.reordering)) {
    ++counters_.reordered;
    return to->pending_.add(at + up_to(conditions_.detour), frame);
  }
  if (fate < (limit += conditions_.duplication)) {
    duplicate(*to, *frame, at + up_to(conditions_.detour));
  } else if (fate < limit + conditions_.corruption) {
    corrupt(*frame);
  }
  to->pending_.add_in_order(in_order, frame);
}

// The link decides when each packet arrives, possibly out of order.
void SimulatedNetwork::carry_by_link(SimulatedPort& from, SimulatedPort& to, Frame* frame) {
  const Passage passage = from.link_->pass(now_, frame->length + (frame->flow.ipv6 ? 20 : 0) + kHeaderBytes);
  if (!passage.arrived()) {
    return lose(frame, passage.fate == LinkFate::kLost ? counters_.lost : counters_.overflowed);
  }
  if (passage.marked && (frame->path.traffic_class & roce::kEcnMask) != 0) {
    frame->path.traffic_class |= roce::kEcnMarked;
  }
  if (passage.copies > 1) duplicate(to, *frame, passage.arrives[1]);
  if (passage.corrupted) corrupt(*frame);
  to.pending_.add(passage.arrives[0], frame);
}

void SimulatedNetwork::lose(Frame* frame, uint64_t& counter) {
  ++counter;
  frames_.put(frame);
}

void SimulatedNetwork::duplicate(SimulatedPort& to, const Frame& frame, TimePoint at) {
  ++counters_.duplicated;
  to.pending_.add(at, copy_of(frame));
}

Frame* SimulatedNetwork::copy_of(const Frame& frame) {
  Frame* copy = frames_.get();
  copy->path = frame.path;
  copy->flow = frame.flow;
  copy->length = frame.length;
  std::copy_n(frame.bytes.begin(), frame.length, copy->bytes.begin());
  return copy;
}

void SimulatedNetwork::corrupt(Frame& frame) {
  ++counters_.corrupted;
  const auto flip = [&frame](uint64_t bit) { frame.bytes[bit / 8] ^= std::byte{1} << (bit % 8); };
  const uint64_t bits = uint64_t{frame.length} * 8;
  if (frame.flow.ipv6) {
    if (random_.one_in(4)) {
      frame.length = static_cast<uint32_t>(random_.below(frame.length));
      return;
    }
    for (uint64_t flips = 1 + random_.below(20); flips > 0; --flips) flip(random_.below(bits));
    return;
  }
  const uint64_t first = random_.below(bits - 2);
  flip(first);
  if (random_.one_in(4)) flip(first + 1);
  if (random_.one_in(4)) flip(first + 2);
}

}  // namespace verbena::net
