// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/multicast.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "adapter/objects/qp.h"
#include "adapter/queues/status_words.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

roce::Address address_of(const ibv_gid& gid) {
  roce::Address address;
  std::memcpy(address.bytes.data(), gid.raw, address.bytes.size());
  return address;
}

}  // namespace

// The LID is only stored: RoCE has none (IBTA annex A16, 16.5.2). The kernel, too, uses it only to tell
// attachments apart.
int attach_to_group(Qp& qp, const ibv_gid& gid, uint16_t lid) {
  OpenDevice& device = qp.owner;
  const MulticastBinding binding{address_of(gid), lid};
  if (qp.init.qp_type != IBV_QPT_UD)
    return because(EINVAL, "multicast is for queue pairs of IBV_QPT_UD, not {}",
                   queues::name_of(qp.init.qp_type));
  if (!binding.group.is_multicast())
    return because(EINVAL, "gid {} is not that of a multicast group: 224.0.0.0/4, or ff00::/8",
                   roce::text_of(binding.group));
  if (device.is_gone()) return EIO;
  if (device.inherited()) return ENODEV;
  const std::lock_guard modifying(qp.modifying);
  if (std::ranges::find(qp.multicast, binding) != qp.multicast.end()) return 0;
  try {
    qp.multicast.reserve(qp.multicast.size() + 1);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  const auto attached = device.engine()->multicast(qp.shard).attach(
      {device.index(), binding.group},
      {qp.transport, (qp.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0});
  if (!attached) return attached.error().code;
  qp.multicast.push_back(binding);
  return 0;
}

int detach_from_group(Qp& qp, const ibv_gid& gid, uint16_t lid) {
  const std::lock_guard modifying(qp.modifying);
  const auto bound = std::ranges::find(qp.multicast, MulticastBinding{address_of(gid), lid});
  if (bound == qp.multicast.end())
    return because(EINVAL, "the queue pair is not attached to {} with lid {:#x}",
                   roce::text_of(address_of(gid)), lid);
  leave_group(qp, *bound);
  qp.multicast.erase(bound);
  return 0;
}

void leave_group(Qp& qp, const MulticastBinding& binding) {
  // In a child after fork() the groups are the parent's, and the child receives nothing from them.
  OpenDevice& device = qp.owner;
  if (!device.inherited())
    device.engine()->multicast(qp.shard).detach({device.index(), binding.group}, *qp.transport);
}

}  // namespace verbena::adapter
