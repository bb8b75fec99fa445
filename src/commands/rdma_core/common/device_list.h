// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// The RDMA devices, as ibv_get_device_list() has them. They live as long as the list, and open ones longer.
class DeviceList {
 public:
  DeviceList();  // if there is none: listed() is false, and errno says why
  ~DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  bool listed() const { return devices_ != nullptr; }
  std::span<ibv_device* const> all() const { return {devices_, static_cast<size_t>(count_)}; }

  // The device of that name, or without a name the first. Null if there is none.
  ibv_device* find(const std::string& name) const;

 private:
  int count_ = 0;
  ibv_device** devices_;
};

// Says that there is no list, with what errno has of it.
void complain_of_no_list();

// What to do where a program finds no device.
inline constexpr const char* kNoDeviceRemedy =
    "'verbena link show' lists the links, 'verbena doctor' what is wrong";

}  // namespace verbena::rdma_core
