// SPDX-License-Identifier: Apache-2.0
// The device list, and opening, importing and closing devices.
#include <cstdlib>

#include "base/failed_call.h"
#include "base/route_search.h"
#include "base/settle_context.h"
#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/device_handle.h"

using namespace verbena::verbs;
namespace provider = verbena::provider;

VERBENA_ABI ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  return answer_pointer([&]() -> verbena::Result<ibv_device**> {
    auto devices = hold_devices();
    if (!devices) return verbena::fail(devices.error().code);
    auto** list = static_cast<ibv_device**>(std::calloc(devices->size() + 1, sizeof(void*)));
    if (list == nullptr) {
      for (DeviceHandle* device : *devices) device->release();
      return verbena::fail(ENOMEM);
    }
    std::copy(devices->begin(), devices->end(), list);
    if (num_devices != nullptr) *num_devices = static_cast<int>(devices->size());
    return list;
  });
}

VERBENA_ABI void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  for (ibv_device** device = list; *device != nullptr; ++device) DeviceHandle::of(*device).release();
  std::free(list);
}

VERBENA_ABI const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

VERBENA_ABI __be64 ibv_get_device_guid(ibv_device* device) {
  return DeviceHandle::of(device).info().guid;
}

VERBENA_ABI int ibv_get_device_index(ibv_device* device) {
  return DeviceHandle::of(device).info().index;
}

VERBENA_ABI ibv_context* ibv_open_device(ibv_device* device) {
  return answer_pointer([&]() -> verbena::Result<ibv_context*> {
    if (device == nullptr) return verbena::fail(is_null("device"));
    DeviceHandle& handle = DeviceHandle::of(device);
    auto opened = handle.open();
    if (!opened) return verbena::fail(opened.error().code);
    verbs_context& abi = (*opened)->abi();
    abi.context.device = device;
    fill_operations(abi);
    handle.hold();
    return &opened->release()->abi().context;
  });
}

VERBENA_ABI int ibv_close_device(ibv_context* context) {
  return call(context, [&](provider::Context& opened) {
    DeviceHandle& handle = DeviceHandle::of(context->device);
    const int code = without_exceptions([&] {
      delete &opened;
      return 0;
    });
    handle.release();
    return code;
  });
}

VERBENA_FORWARD(int, ibv_get_async_event, (ibv_context * context, ibv_async_event* event), call_minus_one,
                context, get_async_event(event))

// Returns the context of the object that the event names. Null for an event of the port or the device: its
// acknowledgement has no effect.
static provider::Context* context_of(const ibv_async_event& event) {
  const EventElement kind = element_of(event.event_type);
  if (kind == EventElement::kCq) return owner(event.element.cq);
  if (kind == EventElement::kQp) return owner(event.element.qp);
  if (kind == EventElement::kSrq) return owner(event.element.srq);
  if (kind == EventElement::kWq) return owner(event.element.wq);
  return nullptr;
}

VERBENA_ABI void ibv_ack_async_event(ibv_async_event* event) {
  without_exceptions([&] {
    if (auto* provider = context_of(*event)) provider->ack_async_event(event);
    return 0;
  });
}

VERBENA_ABI void verbena_settle_context(ibv_context* context) noexcept {
  if (verbena::provider::Context* const known = verbena::provider::find_owner(context)) known->settle();
}

VERBENA_ABI bool verbena_search_route(ibv_context* context, const ibv_ah_attr* address) noexcept {
  bool is_known = true;
  verbena::without_exceptions([&] {
    if (auto* const owner = provider::find_owner(context)) is_known = owner->search_route(*address);
    return 0;
  });
  return is_known;
}

// ---- imports of objects through the command descriptor of the context that created them

// Returns the handle of a device among the current ones, with a reference for the caller; null if it is gone.
static DeviceHandle* hold_device(const provider::DeviceInfo& info) {
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

VERBENA_ABI ibv_context* ibv_import_device(int cmd_fd) {
  return answer_pointer([&]() -> verbena::Result<ibv_context*> {
    auto imported = import_device(registered_providers(), cmd_fd);
    if (!imported) return verbena::fail(imported.error().code);
    DeviceHandle* handle = hold_device(imported->device->info());
    if (handle == nullptr) return verbena::fail(ENODEV);
    verbs_context& abi = imported->context->abi();
    abi.context.device = handle;
    fill_operations(abi);
    return &imported->context.release()->abi().context;
  });
}

VERBENA_FORWARD(ibv_pd*, ibv_import_pd, (ibv_context * context, uint32_t handle), call, context,
                import_pd(handle))
VERBENA_FORWARD(ibv_mr*, ibv_import_mr, (ibv_pd * pd, uint32_t handle), call, pd, import_mr(pd, handle))
VERBENA_FORWARD(ibv_dm*, ibv_import_dm, (ibv_context * context, uint32_t handle), call, context,
                import_dm(handle))
VERBENA_FORWARD(void, ibv_unimport_pd, (ibv_pd * pd), on_owner, pd, unimport_pd(pd))
VERBENA_FORWARD(void, ibv_unimport_mr, (ibv_mr * mr), on_owner, mr, unimport_mr(mr))
VERBENA_FORWARD(void, ibv_unimport_dm, (ibv_dm * dm), on_owner, dm, unimport_dm(dm))

// Returns the record of the calling thread's calls, for this library and its callers (base/failed_call.h).
VERBENA_ABI verbena::CallRecord* verbena_call_record() noexcept {
  static constinit thread_local verbena::CallRecord record{};
  return &record;
}
