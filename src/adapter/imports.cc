// SPDX-License-Identifier: Apache-2.0
// Objects of other contexts that share our command file. Each import is an object of its own to the
// application and shares what is behind with the others. The application sees to it that none is used after
// one of them has been destroyed (ibv_import_mr(3)); whoever does not gets errors.
#include "adapter/software_context.h"

namespace verbena::adapter {

template <class List, class State>
auto SoftwareContext::find_by_handle(List& list, uint32_t handle, State state)
    -> decltype(state(*list.begin())) {
  const std::lock_guard guard(objects_mutex_);
  for (auto& object : list) {
    if (object.handle == handle) return state(object);
  }
  return {};
}

Result<ibv_pd*> SoftwareContext::import_pd(uint32_t handle) {
  auto state = command_file_->find_in_contexts([&](SoftwareContext& context) {
    return context.find_by_handle(context.pds_, handle, [](Pd& pd) { return pd.state; });
  });
  if (state == nullptr) return fail(command_file_->is_foreign() ? EOPNOTSUPP : ENOENT);
  return adopt(std::make_unique<Pd>(std::move(state)), handle);
}

void SoftwareContext::unimport_pd(ibv_pd* pd) {
  const std::lock_guard guard(objects_mutex_);
  delete &Pd::of(pd);
}

Result<ibv_mr*> SoftwareContext::import_mr(ibv_pd* pd, uint32_t handle) {
  auto registration = command_file_->find_in_contexts([&](SoftwareContext& context) {
    return context.find_by_handle(context.mrs_, handle, [](Mr& mr) { return mr.registration; });
  });
  if (registration == nullptr) return fail(command_file_->is_foreign() ? EOPNOTSUPP : ENOENT);
  ibv_mr* mr = adopt(std::move(registration), pd, nullptr, handle);
  Mr::of(mr).imported = true;
  return mr;
}

void SoftwareContext::unimport_mr(ibv_mr* mr) {
  const std::lock_guard guard(objects_mutex_);
  delete &Mr::of(mr);
}

Result<ibv_dm*> SoftwareContext::import_dm(uint32_t handle) {
  auto memory = command_file_->find_in_contexts([&](SoftwareContext& context) {
    return context.find_by_handle(context.dms_, handle, [](Dm& dm) { return dm.memory; });
  });
  if (memory != nullptr) return adopt(std::move(memory), handle);
  // Another process's.
  const auto& file = command_file_->device_memory();
  const auto allocation = file->find(handle);
  if (!allocation) return tl::unexpected(allocation.error());
  auto mapping = file->map(*allocation);
  if (!mapping) return tl::unexpected(mapping.error());
  return adopt(std::make_shared<DeviceMemory>(file, *allocation, std::move(*mapping), false), handle);
}

void SoftwareContext::unimport_dm(ibv_dm* dm) {
  const std::lock_guard guard(objects_mutex_);
  delete &Dm::of(dm);
}

}  // namespace verbena::adapter
