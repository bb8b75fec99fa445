// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/sending_qps.h"

#include <chrono>

#include "control/model/agent_status.h"

namespace verbena::commands {
namespace {

constexpr Duration kHolds = std::chrono::seconds(1);
// Limits how often the page is read: packets with invalid QPNs must not cause a read each.
constexpr Duration kReadInterval = std::chrono::milliseconds(20);

}  // namespace

void SendingQps::refresh(TimePoint now) {
  read_at_ = now;
  by_destination_.clear();
  // Read destroyed QPs first: their packets may still be in the ring. QPs in use then replace them.
  for (const auto choice : {control::QpChoice::kAll, control::QpChoice::kInUse}) {
    control::SlotStatus slot;
    read_status_page(page_.get(), slot, choice);
    for (const control::QpNumbers& qp : slot.qps) {
      by_destination_[qp.remote_qpn & roce::Qpn::kMask] = roce::Qpn(qp.qpn);
    }
  }
}

roce::Qpn SendingQps::that_sends_to(roce::Qpn destination, TimePoint now) {
  const auto find = [&] {
    const auto found = by_destination_.find(destination.value());
    return found == by_destination_.end() ? roce::Qpn() : found->second;
  };
  const bool is_fresh = read_at_ != TimePoint::min() && now - read_at_ < kHolds;
  if (const roce::Qpn known = find(); is_fresh && known.value() != 0) return known;
  if (read_at_ == TimePoint::min() || now - read_at_ >= kReadInterval) refresh(now);
  return find();
}

}  // namespace verbena::commands
