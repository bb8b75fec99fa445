// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "adapter/software_context.h"

namespace verbena::adapter {
namespace {

roce::Address address_of(const ibv_gid& gid) {
  roce::Address address;
  std::memcpy(address.bytes.data(), gid.raw, address.bytes.size());
  return address;
}

}  // namespace

// The LID is only remembered: RoCE has none (IBTA annex A16, 16.5.2), and the kernel, too, tells by it what
// is attached already and what is to be detached.
int SoftwareContext::attach_mcast(ibv_qp* abi_qp, const ibv_gid* gid, uint16_t lid) {
  Qp& qp = Qp::of(abi_qp);
  const MulticastBinding binding{address_of(*gid), lid};
  if (!binding.group.is_multicast() || qp.init.qp_type != IBV_QPT_UD) return EINVAL;
  if (is_gone()) return EIO;
  if (engine_->inherited()) return ENODEV;
  const std::lock_guard modifying(qp.modifying);
  if (std::ranges::find(qp.multicast, binding) != qp.multicast.end()) return 0;
  try {
    qp.multicast.reserve(qp.multicast.size() + 1);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  const auto attached =
      engine_->multicast().attach({device_index_, binding.group},
                                  {qp.transport, (qp.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0});
  if (!attached) return attached.error().code;
  qp.multicast.push_back(binding);
  return 0;
}

int SoftwareContext::detach_mcast(ibv_qp* abi_qp, const ibv_gid* gid, uint16_t lid) {
  Qp& qp = Qp::of(abi_qp);
  const std::lock_guard modifying(qp.modifying);
  const auto bound = std::ranges::find(qp.multicast, MulticastBinding{address_of(*gid), lid});
  if (bound == qp.multicast.end()) return EINVAL;
  leave(qp, *bound);
  qp.multicast.erase(bound);
  return 0;
}

void SoftwareContext::leave(Qp& qp, const MulticastBinding& binding) {
  // In a child after fork() the groups are its parent's, and nothing comes from them.
  if (!engine_->inherited()) engine_->multicast().detach({device_index_, binding.group}, *qp.transport);
}

}  // namespace verbena::adapter
