// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {

Result<ibv_td*> SoftwareContext::alloc_td(ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return fail(because(EINVAL, "comp_mask {:#x} is not 0", attr->comp_mask));
  return threads_.add(std::make_unique<Td>(*device_));
}

int SoftwareContext::dealloc_td(ibv_td* td) {
  if (Td::of(td).users.load() != 0)
    return because(EBUSY, "{} parent domains use it", uint32_t{Td::of(td).users.load()});
  threads_.destroy(Td::of(td));
  return 0;
}

namespace {

// Unique in the process, because regions and QPs of all contexts share one engine.
memory::PdId next_pd_id() {
  static std::atomic<memory::PdId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Result<ibv_pd*> SoftwareContext::alloc_pd() {
  if (device_->is_gone()) return fail(EIO);
  auto state = std::make_shared<PdState>();
  state->id = next_pd_id();
  state->shown = device_->show(protocol::ObjectKind::kPd, {device_->context_number()});
  state->users.show_in(state->shown, protocol::kPdUsers);
  auto pd = domains_.make(*device_, std::move(state));
  if (!pd) return tl::unexpected(pd.error());
  (*pd)->handle = device_->next_handle();
  return domains_.add(std::move(*pd));
}

int SoftwareContext::dealloc_pd(ibv_pd* abi_pd) {
  Pd& pd = Pd::of(abi_pd);
  if (pd.users.load() != 0) {
    because(EBUSY, "{} regions, windows, queue pairs, shared receive queues or addresses use it",
            pd.users.load());
    if (log_level() < LogLevel::kError) return EBUSY;
    const std::string regions = regions_of(abi_pd), qps = queue_pairs_.users_of(&pd);
    return say_busy(abi_pd, regions + (regions.empty() || qps.empty() ? "" : ", ") + qps);
  }
  if (pd.parent_of != nullptr) --pd.parent_of->users;
  if (pd.thread != nullptr) --pd.thread->users;
  domains_.destroy(pd);
  return 0;
}

Result<ibv_pd*> SoftwareContext::alloc_parent_domain(ibv_parent_domain_init_attr* attr) {
  // IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC allows memory that a confidential guest shares
  // with its host. Only a device with IBV_DEVICE_CC_DMA_BOUNCE needs it. Other devices, like this one, use
  // plain memory.
  constexpr uint32_t kAllowUnprotected = 1 << 2;
  constexpr uint32_t kUnderstood =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | kAllowUnprotected;
  if (!device_->made(attr->pd)) return fail(because(EINVAL, "pd is null, or none of this ibv_context"));
  if ((attr->comp_mask & ~kUnderstood) != 0)
    return fail(because(EOPNOTSUPP, "comp_mask {:#x}: bits {:#x} are unknown", attr->comp_mask,
                        attr->comp_mask & ~kUnderstood));
  if (attr->td != nullptr && !device_->made(attr->td))
    return fail(because(EINVAL, "td is none of this ibv_context"));
  const bool allocates = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (attr->alloc == nullptr || attr->free == nullptr))
    return fail(because(EINVAL, "alloc or free is null, and IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS is set"));

  Pd& real = Pd::of(attr->pd);
  auto state = std::make_shared<PdState>();
  state->id = real.id;
  auto made = domains_.make(*device_, std::move(state));
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Pd> pd = std::move(*made);
  pd->parent_of = &real;
  if (allocates) {
    const bool has_context = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0;
    pd->memory = std::make_unique<CustomMemory>(pd.get(), attr->alloc, attr->free,
                                                has_context ? attr->pd_context : nullptr);
  }
  if (attr->td != nullptr) {
    pd->thread = &Td::of(attr->td);
    ++pd->thread->users;
  }
  ++real.users;
  pd->handle = real.handle;
  return domains_.add(std::move(pd));
}

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
