// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/multicast.h"

#include <cerrno>
#include <new>

namespace verbena::transport {

std::vector<MulticastMembers::Member>::iterator MulticastMembers::find(const QueuePair& qp) {
  return std::ranges::find(members_, &qp, [](const Member& member) { return member.attachment.qp; });
}

Result<void> MulticastMembers::attach(const Attachment& attachment) {
  if (const auto known = find(*attachment.qp); known != members_.end()) {
    ++known->times;
    return {};
  }
  try {
    members_.push_back({attachment});
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  return {};
}

bool MulticastMembers::detach(const QueuePair& qp) {
  const auto known = find(qp);
  if (known == members_.end()) return false;
  if (--known->times == 0) members_.erase(known);
  return true;
}

bool MulticastCopies::is_first(Way way, roce::Qpn sender, roce::Psn psn, TimePoint now) {
  Sender* const known = find(sender, psn, now);
  if (known == nullptr) return way == Way::kWire;
  known->heard = now;
  advance(*known, psn);
  const size_t bit = psn.value() % kWindow;
  auto& own = way == Way::kMemory ? known->by_memory : known->by_wire;
  auto& other = way == Way::kMemory ? known->by_wire : known->by_memory;
  const bool is_second = other[bit];
  other[bit] = false;
  own[bit] = !is_second;
  return !is_second;
}

// Moves the window forward to include the packet, if it is not in it.
void MulticastCopies::advance(Sender& sender, roce::Psn psn) {
  const int32_t ahead = psn - sender.newest;
  constexpr auto kSize = static_cast<int32_t>(kWindow);
  // From this distance on, packets are forgotten together: one by one it would take longer than receiving a
  // hundred.
  constexpr int32_t kFar = 512;
  if (ahead <= 0 && ahead > -kSize) return;
  if (ahead >= kSize || ahead < 0) {
    sender.by_memory.reset();
    sender.by_wire.reset();
  } else if (ahead >= kFar) {
    using Places = decltype(sender.by_wire);
    const size_t begin = (sender.newest + 1).value() % kWindow;
    const Places some = Places().set() >> static_cast<size_t>(kSize - ahead);
    const Places others = ~(some << begin | some >> (kWindow - begin));
    sender.by_memory &= others;
    sender.by_wire &= others;
  } else {
    for (roce::Psn next = sender.newest + 1; next != psn + 1; ++next) {
      sender.by_memory[next.value() % kWindow] = false;
      sender.by_wire[next.value() % kWindow] = false;
    }
  }
  sender.newest = psn;
}

MulticastCopies::Sender* MulticastCopies::find(roce::Qpn qpn, roce::Psn psn, TimePoint now) {
  const auto known = std::ranges::find(senders_, qpn, [](const auto& sender) { return sender->qpn; });
  if (known != senders_.end()) return known->get();
  try {
    if (senders_.size() < kMaxSenders) {
      senders_.push_back(std::make_unique<Sender>());
      senders_.back()->qpn = qpn;
      senders_.back()->newest = psn;
      return senders_.back().get();
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  Sender& oldest = **std::ranges::min_element(senders_, {}, [](const auto& sender) { return sender->heard; });
  if (now - oldest.heard < kForgottenAfter) return nullptr;
  oldest = {.qpn = qpn, .newest = psn, .heard = now, .by_memory = {}, .by_wire = {}};
  return &oldest;
}

}  // namespace verbena::transport
