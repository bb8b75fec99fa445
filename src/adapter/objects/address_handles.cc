// SPDX-License-Identifier: Apache-2.0

#include <cstring>

#include "adapter/objects/software_context.h"

namespace verbena::adapter {

Result<ibv_ah*> SoftwareContext::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  auto path = device_->resolve(*attr);
  if (!path) return tl::unexpected(path.error());
  // The kernel's rdma_create_user_ah() checks the route, too.
  const auto checked = device_->engine()->home().routes().check(*path, transport::kNeighbourPatience);
  if (!checked) return tl::unexpected(checked.error());
  auto ah = address_handles_.make(*device_);
  if (!ah) return tl::unexpected(ah.error());
  (*ah)->pd = pd;
  (*ah)->handle = device_->next_handle();
  (*ah)->path = *path;
  (*ah)->domain = &Pd::of(pd);
  ++Pd::of(pd).users;
  return address_handles_.add(std::move(*ah));
}

int SoftwareContext::destroy_ah(ibv_ah* ah) {
  --Ah::of(ah).domain->users;
  address_handles_.destroy(Ah::of(ah));
  return 0;
}

// Writes the MAC address of the device's own netdev to `mac`, and 0xffff (no VLAN) to `vlan`, which may be
// null. The adapter uses neither value: packets leave by UDP sockets, for which the kernel resolves
// addresses.
int SoftwareContext::resolve_eth_l2_from_gid(ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vlan) {
  if (auto path = device_->resolve(*attr); !path) return path.error().code;
  const auto now = device_->link();
  if (now == nullptr) return ENODEV;
  std::memcpy(mac, now->mac.data(), 6);
  if (vlan != nullptr) *vlan = 0xffff;
  return 0;
}

}  // namespace verbena::adapter
