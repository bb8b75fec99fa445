// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/device_handle.h"

#include <algorithm>
#include <mutex>

#include "base/log.h"
#include "base/mutex_at_fork.h"

namespace verbena::verbs {
namespace {

using Devices = std::vector<std::shared_ptr<provider::Device>>;

void append(Devices& all, Devices more) {
  const size_t of_others = all.size();
  for (auto& device : more) {
    const std::string& name = device->info().name;
    const auto has_name = [&](const auto& known) { return known->info().name == name; };
    if (std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(of_others), has_name)) {
      log_warning("device {} is left out: another provider has one of this name", name);
    } else {
      all.push_back(std::move(device));
    }
  }
}

}  // namespace

Result<Devices> merged_devices(std::span<provider::Provider* const> providers) {
  Devices all;
  int first_error = 0;
  for (provider::Provider* provider : providers) {
    auto devices = provider->devices();
    if (devices) {
      append(all, std::move(*devices));
    } else if (first_error == 0) {
      first_error = devices.error().code;
    }
  }
  if (all.empty() && first_error != 0) return fail(first_error);
  return all;
}

Result<provider::Provider::Imported> import_device(std::span<provider::Provider* const> providers,
                                                   int cmd_fd) {
  int error = EOPNOTSUPP;
  for (provider::Provider* provider : providers) {
    auto imported = provider->import(cmd_fd);
    if (imported) return imported;
    const int why = imported.error().code;
    if (why != EINVAL && why != EOPNOTSUPP)
      return fail(why);  // the descriptor is this provider's, which cannot serve it
    if (why == EINVAL) error = EINVAL;
  }
  return fail(error);
}

namespace {

template <size_t kSize>
void copy_name(char (&to)[kSize], const std::string& from) {
  std::copy_n(from.c_str(), from.size() + 1, to);
}

bool fits_the_abi(const provider::DeviceInfo& info) {
  return info.name.size() < IBV_SYSFS_NAME_MAX && info.dev_name.size() < IBV_SYSFS_NAME_MAX &&
         info.dev_path.size() < IBV_SYSFS_PATH_MAX && info.ibdev_path.size() < IBV_SYSFS_PATH_MAX;
}

// The devices of the last query, with one reference each.
struct KnownDevices {
  std::mutex mutex;
  std::vector<DeviceHandle*> handles;
};

KnownDevices& known_devices() {
  static KnownDevices& the_devices = *new KnownDevices;  // never destroyed: threads outlive static objects
  return the_devices;
}

[[maybe_unused]] const int watched = lock_at_fork<[]() -> std::mutex& { return known_devices().mutex; }>();

// Returns the known handle for the device, or a new one. A known handle takes over the provider's new object
// and leaves the old one in `device`: its destructor must not run under the lock.
DeviceHandle* find_or_make(const std::vector<DeviceHandle*>& known,
                           std::shared_ptr<provider::Device>& device) {
  for (DeviceHandle* handle : known) {
    if (handle->is(device->info())) {
      handle->hold();
      handle->renew(device);
      return handle;
    }
  }
  return DeviceHandle::make(device);
}

}  // namespace

DeviceHandle::DeviceHandle(std::shared_ptr<provider::Device> device)
    : ibv_device{}, info_(device->info()), device_(std::move(device)) {
  copy_name(name, info_.name);
  copy_name(dev_name, info_.dev_name);
  copy_name(dev_path, info_.dev_path);
  copy_name(ibdev_path, info_.ibdev_path);
  node_type = info_.node_type;
  transport_type = info_.transport;
}

DeviceHandle* DeviceHandle::make(std::shared_ptr<provider::Device> device) {
  const provider::DeviceInfo& info = device->info();
  if (!fits_the_abi(info)) {
    log_warning("device {} is left out: one of its names is too long", info.name);
    return nullptr;
  }
  return new DeviceHandle(std::move(device));
}

bool DeviceHandle::is(const provider::DeviceInfo& other) const {
  return info_.index == other.index && info_.name == other.name && info_.dev_name == other.dev_name &&
         info_.guid == other.guid;
}

Result<std::unique_ptr<provider::Context>> DeviceHandle::open() {
  std::shared_ptr<provider::Device> device;
  {
    const std::lock_guard lock(known_devices().mutex);
    device = device_;
  }
  return device->open();
}

Result<std::vector<DeviceHandle*>> hold_devices() {
  auto devices = merged_devices(registered_providers());
  if (!devices) return fail(devices.error().code);

  std::vector<DeviceHandle*> held;
  held.reserve(devices->size());
  std::vector<DeviceHandle*> now;
  now.reserve(devices->size());
  {
    KnownDevices& known = known_devices();
    const std::lock_guard lock(known.mutex);
    for (auto& device : *devices) {
      DeviceHandle* handle = find_or_make(known.handles, device);
      if (handle == nullptr) continue;
      now.push_back(handle);
      handle->hold();
      held.push_back(handle);
    }
    now.swap(known.handles);
  }
  for (DeviceHandle* handle : now) handle->release();
  return held;
}

}  // namespace verbena::verbs
