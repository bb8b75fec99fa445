// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/device_list.h"

#include <cerrno>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

DeviceList::DeviceList() : devices_(ibv_get_device_list(&count_)) {
  if (devices_ == nullptr) complain_of(errno, "Failed to get IB devices list", kNoDeviceRemedy);
}

DeviceList::~DeviceList() {
  if (devices_ != nullptr) ibv_free_device_list(devices_);
}

ibv_device* DeviceList::find(const std::string& name) const {
  for (ibv_device* device : all()) {
    if (name.empty() || name == ibv_get_device_name(device)) return device;
  }
  return nullptr;
}

ibv_device* DeviceList::find(const std::string& name, const std::string& complaint) const {
  ibv_device* device = find(name);
  if (device == nullptr) complain(complaint, kNoDeviceRemedy);
  return device;
}

}  // namespace verbena::rdma_core
