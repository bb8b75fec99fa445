// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// The RDMA devices from ibv_get_device_list(). An ibv_device pointer is valid as long as the DeviceList
// exists, or while the device is open.
class DeviceList {
 public:
  DeviceList();  // reports a failure; listed() is false then
  ~DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  bool listed() const { return devices_ != nullptr; }
  std::span<ibv_device* const> all() const { return {devices_, static_cast<size_t>(count_)}; }

  // Returns the device named `name`, or the first one if `name` is empty. Returns null if there is none.
  ibv_device* find(const std::string& name) const;
  // Does the same, but reports `complaint` and a remedy if there is none.
  ibv_device* find(const std::string& name, const std::string& complaint) const;

 private:
  int count_ = 0;
  ibv_device** devices_;
};

// The remedy in messages about a missing device.
inline constexpr const char* kNoDeviceRemedy =
    "'verbena link show' lists the links, 'verbena doctor' what is wrong";

}  // namespace verbena::rdma_core
