// SPDX-License-Identifier: Apache-2.0
// Imports objects of other contexts that share the command file. To the application each import is an object
// of its own; it shares the state behind it with the others. The application must not use any of them after
// one was destroyed (ibv_import_mr(3)); a program that does gets errors.
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
