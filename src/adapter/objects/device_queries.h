// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/objects/open_device.h"

namespace verbena::adapter {

// Answers queries about a device, its port and its GID table. Calls that return an int return 0 or an errno
// value. Thread-safe.
class DeviceQueries {
 public:
  explicit DeviceQueries(const OpenDevice& device) : device_(device) {}

  // Returns the device's attributes without those of memory and of raw packets, which the caller fills in.
  ibv_device_attr_ex device() const;
  int port(uint8_t port, ibv_port_attr& attr) const;
  int gid(uint8_t port, int index, ibv_gid& gid) const;
  int gid_entry(uint8_t port, uint32_t index, ibv_gid_entry& entry) const;
  int pkey(uint8_t port, int index, __be16& pkey) const;
  std::vector<ibv_gid_entry> gid_table() const;
  static int clock(ibv_values_ex& values);

 private:
  const OpenDevice& device_;
};

}  // namespace verbena::adapter
