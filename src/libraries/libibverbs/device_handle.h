// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// What an application holds as ibv_device*. Counted: by each list it is in, each context opened from it, and
// the known devices while it exists; so the pointer of a device stays the same as long as the device does
// (UCX compares them), and stays valid while anyone uses it.
class DeviceHandle : public ibv_device {
 public:
  // Null if a name is longer than the ABI has room for.
  static DeviceHandle* make(std::shared_ptr<provider::Device> device);
  static DeviceHandle& of(ibv_device* device) { return *static_cast<DeviceHandle*>(device); }

  const provider::DeviceInfo& info() const { return info_; }
  bool is(const provider::DeviceInfo& other) const;
  // The provider made another object for the same device; the former is given back. REQUIRES: the known
  // devices are locked
  void renew(std::shared_ptr<provider::Device>& device);
  Result<std::unique_ptr<provider::Context>> open();

  void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  explicit DeviceHandle(std::shared_ptr<provider::Device> device);
  ~DeviceHandle() = default;

  // Vendor libraries decide whether a device is theirs by a pointer that rdma-core keeps behind ibv_device;
  // they must find a null there.
  [[maybe_unused]] const std::array<std::byte, 64> not_a_vendors_{};
  std::atomic<int> references_{1};
  const provider::DeviceInfo info_;
  std::shared_ptr<provider::Device> device_;  // guarded by the mutex of the known devices
};

static_assert(sizeof(ibv_device) == 664 && sizeof(DeviceHandle) >= 672);

// The devices there are now, one reference each for the caller. Any thread.
Result<std::vector<DeviceHandle*>> hold_devices();

}  // namespace verbena::verbs
