// SPDX-License-Identifier: Apache-2.0
// Protection domains, parent domains and thread domains.
#include <atomic>

#include "adapter/software_context.h"

namespace verbena::adapter {
namespace {

// Unique in the process: regions and QPs of all contexts meet in one shard.
memory::PdId next_pd_id() {
  static std::atomic<memory::PdId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Result<ibv_pd*> SoftwareContext::alloc_pd() {
  if (is_gone()) return fail(EIO);
  auto state = std::make_shared<PdState>();
  state->id = next_pd_id();
  return adopt(std::make_unique<Pd>(std::move(state)), next_handle());
}

ibv_pd* SoftwareContext::adopt(std::unique_ptr<Pd> pd, uint32_t handle) {
  pd->context = &abi().context;
  pd->handle = handle;
  const std::lock_guard guard(objects_mutex_);
  pds_.push_back(*pd);
  return pd.release();
}

int SoftwareContext::dealloc_pd(ibv_pd* abi_pd) {
  Pd& pd = Pd::of(abi_pd);
  if (pd.users.load() != 0) return EBUSY;
  if (pd.parent_of != nullptr) --pd.parent_of->users;
  if (pd.thread != nullptr) --pd.thread->users;
  const std::lock_guard guard(objects_mutex_);
  delete &pd;
  return 0;
}

Result<ibv_pd*> SoftwareContext::alloc_parent_domain(ibv_parent_domain_init_attr* attr) {
  constexpr uint32_t kUnderstood =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr->pd == nullptr || attr->pd->context != &abi().context) return fail(EINVAL);
  if ((attr->comp_mask & ~kUnderstood) != 0) return fail(EINVAL);
  if (attr->td != nullptr && attr->td->context != &abi().context) return fail(EINVAL);
  const bool allocates = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (attr->alloc == nullptr || attr->free == nullptr)) return fail(EINVAL);

  Pd& real = Pd::of(attr->pd);
  auto state = std::make_shared<PdState>();
  state->id = real.id;
  auto pd = std::make_unique<Pd>(std::move(state));
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
  return adopt(std::move(pd), real.handle);
}

Result<ibv_td*> SoftwareContext::alloc_td(ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return fail(EINVAL);
  auto td = std::make_unique<Td>();
  td->context = &abi().context;
  const std::lock_guard guard(objects_mutex_);
  tds_.push_back(*td);
  return td.release();
}

int SoftwareContext::dealloc_td(ibv_td* td) {
  if (Td::of(td).users.load() != 0) return EBUSY;
  const std::lock_guard guard(objects_mutex_);
  delete &Td::of(td);
  return 0;
}

}  // namespace verbena::adapter
