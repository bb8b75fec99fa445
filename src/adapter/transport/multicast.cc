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

}  // namespace verbena::transport
