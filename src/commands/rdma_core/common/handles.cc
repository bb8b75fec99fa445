// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/handles.h"

namespace verbena::rdma_core {

DeviceList::DeviceList() : devices_(ibv_get_device_list(&count_)) {
  if (devices_ == nullptr) fail_of(errno, "Failed to get IB devices list", kNoDeviceRemedy);
}

ibv_device* DeviceList::find(const std::string& name, const std::string& complaint) const {
  for (ibv_device* device : all()) {
    if (name.empty() || name == ibv_get_device_name(device)) return device;
  }
  fail(complaint, kNoDeviceRemedy);
}

}  // namespace verbena::rdma_core
