// SPDX-License-Identifier: Apache-2.0
// The device list, and opening and closing devices.
#include <algorithm>
#include <cstdlib>

#include "base/settle_context.h"
#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/context_ops.h"
#include "libraries/libibverbs/device_handle.h"
#include "libraries/libibverbs/event_element.h"

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
  provider::Context* opened = nullptr;
  if (const int code = answer_code([&] {
        opened = owner(context);
        return opened != nullptr ? 0 : EINVAL;
      });
      code != 0)
    return code;
  DeviceHandle& handle = DeviceHandle::of(context->device);
  const int code = answer_code([&] {
    delete opened;
    return 0;
  });
  handle.release();
  return code;
}

VERBENA_ABI int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return answer_minus_one([&] {
    auto* provider = owner(context);
    return provider != nullptr ? provider->get_async_event(event) : EINVAL;
  });
}

// Returns the context of the object that the event names. Null for an event of the port or the device: its
// acknowledgement has no effect.
static provider::Context* context_of(const ibv_async_event& event) {
  switch (element_of(event.event_type)) {
    case EventElement::kCq:
      return owner(event.element.cq);
    case EventElement::kQp:
      return owner(event.element.qp);
    case EventElement::kSrq:
      return owner(event.element.srq);
    case EventElement::kWq:
      return owner(event.element.wq);
    case EventElement::kNone:
      break;
  }
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
