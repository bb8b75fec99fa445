// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// The RDMA devices from ibv_get_device_list(). A device is valid as long as the list, and longer if it is
// open.
class DeviceList {
 public:
  DeviceList();  // on failure listed() is false and errno is set
  ~DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  bool listed() const { return devices_ != nullptr; }
  std::span<ibv_device* const> all() const { return {devices_, static_cast<size_t>(count_)}; }

  // Returns the device of that name, or the first one if `name` is empty. Null if there is none.
  ibv_device* find(const std::string& name) const;

 private:
  int count_ = 0;
  ibv_device** devices_;
};

// Reports that the list could not be read, with errno.
void complain_of_no_list();

// The remedy where a program finds no device.
inline constexpr const char* kNoDeviceRemedy =
    "'verbena link show' lists the links, 'verbena doctor' what is wrong";

}  // namespace verbena::rdma_core
