// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Returns the providers behind this copy of the C ABI, in the order in which programs see their devices. Each
// program that links this folder defines it: registered_providers.cc for the shared library, tests with
// fakes. The providers must outlive every call of a verb, also calls during the process's exit.
std::span<provider::Provider* const> registered_providers();

// Combines several providers into one. Thread-safe.

// Returns the devices of all providers, provider after provider. If two providers have a device of the same
// name, omits the second provider's device and logs a warning. Returns a provider's error only if there is no
// device at all.
Result<std::vector<std::shared_ptr<provider::Device>>> merged_devices(
    std::span<provider::Provider* const> providers);

// Opens the device of a command descriptor (another context's cmd_fd) with the provider that owns the
// descriptor. Errors: EINVAL if no provider owns the descriptor; EOPNOTSUPP if no provider supports imports;
// other errors of the owner.
Result<provider::Provider::Imported> import_device(std::span<provider::Provider* const> providers,
                                                   int cmd_fd);

// The object behind an application's ibv_device*. Reference-counted: each device list, each open context, and
// the list of known devices hold a reference. So a device has the same pointer as long as the device exists
// (UCX compares the pointers). The pointer stays valid while a list or context refers to the device.
// Thread-safe.
class DeviceHandle : public ibv_device {
 public:
  // Creates a handle with one reference, which the caller owns. Returns null if a name or path of the device
  // is too long for the ABI.
  static DeviceHandle* make(std::shared_ptr<provider::Device> device);
  static DeviceHandle& of(ibv_device* device) { return *static_cast<DeviceHandle*>(device); }

  const provider::DeviceInfo& info() const { return info_; }
  // Returns whether `other` describes the same device: equal index, names and GUID.
  bool is(const provider::DeviceInfo& other) const;
  // Swaps the provider's object behind this handle with `device`, which then has the old object. Called when
  // the provider lists its devices again. REQUIRES: the list of known devices is locked
  void renew(std::shared_ptr<provider::Device>& device) { device_.swap(device); }
  Result<std::unique_ptr<provider::Context>> open();

  void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  explicit DeviceHandle(std::shared_ptr<provider::Device> device);
  ~DeviceHandle() = default;

  // Zero bytes behind ibv_device. In rdma-core's struct, a pointer lies there by which a vendor library
  // recognizes its own devices. Vendor libraries find null here, and so do not take this device for theirs.
  [[maybe_unused]] const std::array<std::byte, 64> not_a_vendors_{};
  std::atomic<int> references_{1};
  const provider::DeviceInfo info_;
  std::shared_ptr<provider::Device> device_;  // guarded by the mutex of the list of known devices
};

static_assert(sizeof(ibv_device) == 664 && sizeof(DeviceHandle) >= 672);

// Returns the current devices. The caller must release() each of them. Thread-safe.
Result<std::vector<DeviceHandle*>> hold_devices();

}  // namespace verbena::verbs
