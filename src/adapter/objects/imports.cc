// SPDX-License-Identifier: Apache-2.0
// Objects of other contexts that share our command file. Each import is an object of its own to the
// application and shares what is behind with the others. The application sees to it that none is used after
// one of them has been destroyed (ibv_import_mr(3)); a program that does not gets errors.
#include "adapter/objects/software_context.h"

namespace verbena::adapter {

Result<ibv_pd*> SoftwareContext::import_pd(uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto state = file.find_in_contexts([&](SoftwareContext& context) { return context.domains_.find(handle); });
  if (state == nullptr) return fail(file.is_foreign() ? EOPNOTSUPP : ENOENT);
  return domains_.import(std::move(state), handle);
}

Result<ibv_mr*> SoftwareContext::import_mr(ibv_pd* pd, uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto registration =
      file.find_in_contexts([&](SoftwareContext& context) { return context.regions_.find(handle); });
  if (registration == nullptr) return fail(file.is_foreign() ? EOPNOTSUPP : ENOENT);
  return regions_.import(std::move(registration), pd, handle);
}

Result<ibv_dm*> SoftwareContext::import_dm(uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto memory =
      file.find_in_contexts([&](SoftwareContext& context) { return context.device_memories_.find(handle); });
  if (memory == nullptr) return device_memories_.import_foreign(handle);
  return device_memories_.import(std::move(memory), handle);
}

}  // namespace verbena::adapter
