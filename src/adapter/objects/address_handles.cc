// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/address_handles.h"

#include <cstring>

#include "adapter/objects/protection_domains.h"

namespace verbena::adapter {

Result<ibv_ah*> AddressHandles::create(ibv_pd* pd, const ibv_ah_attr& attr) {
  if (device_.is_gone()) return fail(EIO);
  auto path = device_.resolve(attr);
  if (!path) return tl::unexpected(path.error());
  // The kernel's rdma_create_user_ah() checks the route, too.
  const auto checked = device_.engine()->home().routes().check(*path, transport::kNeighbourPatience);
  if (!checked) return tl::unexpected(checked.error());
  auto ah = table_.make();
  if (!ah) return tl::unexpected(ah.error());
  (*ah)->context = device_.context();
  (*ah)->pd = pd;
  (*ah)->handle = device_.next_handle();
  (*ah)->path = *path;
  (*ah)->domain = &Pd::of(pd);
  ++Pd::of(pd).users;
  return table_.add(std::move(*ah));
}

int AddressHandles::destroy(ibv_ah* ah) {
  --Ah::of(ah).domain->users;
  table_.destroy(Ah::of(ah));
  return 0;
}

int AddressHandles::resolve_ethernet(const ibv_ah_attr& attr, uint8_t mac[6], uint16_t* vlan) const {
  if (auto path = device_.resolve(attr); !path) return path.error().code;
  // IP resolves addresses when packets are sent. The device's own MAC address is as good an answer as any,
  // and is always known.
  const auto now = device_.link();
  if (now == nullptr) return ENODEV;
  std::memcpy(mac, now->mac.data(), 6);
  if (vlan != nullptr) *vlan = 0xffff;
  return 0;
}

}  // namespace verbena::adapter
