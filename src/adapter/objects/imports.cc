// SPDX-License-Identifier: Apache-2.0
// Imports objects of other contexts that share the command file. To the application each import is an object
// of its own; it shares the state behind it with the others. The application must not use any of them after
// one was destroyed (ibv_import_mr(3)); a program that does gets errors.
#include "adapter/objects/software_context.h"

namespace verbena::adapter {

Result<ibv_pd*> SoftwareContext::import_pd(uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto state = file.find_in_contexts([&](SoftwareContext& context) {
    return context.domains_.find_by_handle(handle, [](Pd& pd) { return pd.state; });
  });
  if (state == nullptr) return fail(file.is_foreign() ? EOPNOTSUPP : ENOENT);
  auto pd = std::make_unique<Pd>(*device_, std::move(state));
  pd->handle = handle;
  return domains_.add(std::move(pd));
}

Result<ibv_mr*> SoftwareContext::import_mr(ibv_pd* pd, uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto registration = file.find_in_contexts([&](SoftwareContext& context) {
    return context.regions_.find_by_handle(handle, [](Mr& mr) { return mr.registration; });
  });
  if (registration == nullptr) return fail(file.is_foreign() ? EOPNOTSUPP : ENOENT);
  auto mr = std::make_unique<Mr>(*device_);
  mr->imported = true;
  return add_mr(std::move(mr), std::move(registration), pd, nullptr, handle);
}

Result<ibv_dm*> SoftwareContext::import_dm(uint32_t handle) {
  auto memory = device_->command_file().find_in_contexts([&](SoftwareContext& context) {
    return context.device_memories_.find_by_handle(handle, [](Dm& dm) { return dm.memory; });
  });
  return memory == nullptr ? import_foreign_dm(handle) : add_dm(std::move(memory), handle);
}

void SoftwareContext::unimport_pd(ibv_pd* pd) {
  domains_.destroy(Pd::of(pd));
}

void SoftwareContext::unimport_mr(ibv_mr* mr) {
  regions_.destroy(Mr::of(mr));
}

void SoftwareContext::unimport_dm(ibv_dm* dm) {
  device_memories_.destroy(Dm::of(dm));
}

}  // namespace verbena::adapter
