// SPDX-License-Identifier: Apache-2.0
// Import of objects through the command descriptor of the context that created them.
#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/context_ops.h"
#include "libraries/libibverbs/device_handle.h"
#include "libraries/libibverbs/provider_list.h"

using verbena::fail;
using verbena::Result;
using namespace verbena::verbs;

namespace {

// Returns the handle of a device among the current ones, with a reference for the caller; null if it is gone.
DeviceHandle* hold_device(const verbena::provider::DeviceInfo& info) {
  auto devices = hold_devices();
  if (!devices) return nullptr;
  DeviceHandle* found = nullptr;
  for (DeviceHandle* handle : *devices) {
    if (found == nullptr && handle->is(info)) {
      found = handle;
    } else {
      handle->release();
    }
  }
  return found;
}

}  // namespace

VERBENA_ABI ibv_context* ibv_import_device(int cmd_fd) {
  return answer_pointer([&]() -> Result<ibv_context*> {
    auto imported = import_device(registered_providers(), cmd_fd);
    if (!imported) return fail(imported.error().code);
    DeviceHandle* handle = hold_device(imported->device->info());
    if (handle == nullptr) return fail(ENODEV);
    verbs_context& abi = imported->context->abi();
    abi.context.device = handle;
    fill_operations(abi);
    return &imported->context.release()->abi().context;
  });
}

VERBENA_ABI ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  return answer_pointer([&]() -> Result<ibv_pd*> {
    auto* provider = owner(context);
    if (provider == nullptr) return fail(EINVAL);
    return provider->import_pd(handle);
  });
}

VERBENA_ABI ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  return answer_pointer([&]() -> Result<ibv_mr*> {
    auto* provider = owner(pd);
    if (provider == nullptr) return fail(EINVAL);
    return provider->import_mr(pd, handle);
  });
}

VERBENA_ABI ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  return answer_pointer([&]() -> Result<ibv_dm*> {
    auto* provider = owner(context);
    if (provider == nullptr) return fail(EINVAL);
    return provider->import_dm(handle);
  });
}

VERBENA_ABI void ibv_unimport_pd(ibv_pd* pd) {
  without_exceptions([&] {
    if (auto* provider = owner(pd)) provider->unimport_pd(pd);
    return 0;
  });
}

VERBENA_ABI void ibv_unimport_mr(ibv_mr* mr) {
  without_exceptions([&] {
    if (auto* provider = owner(mr)) provider->unimport_mr(mr);
    return 0;
  });
}

VERBENA_ABI void ibv_unimport_dm(ibv_dm* dm) {
  without_exceptions([&] {
    if (auto* provider = owner(dm)) provider->unimport_dm(dm);
    return 0;
  });
}
