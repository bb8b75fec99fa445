// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/registration.h"

namespace verbena::adapter {

// Device memory as the application knows it (ibv_alloc_dm(3)).
struct Dm : ibv_dm {
  using Abi = ibv_dm;
  static Dm& of(ibv_dm* dm) { return *static_cast<Dm*>(dm); }

  ListHook owned;
  provider::LiveObject live;
  std::shared_ptr<DeviceMemory> memory;
};

// Creates and owns the device memory that a context has allocated or imported. Thread-safe.
class DeviceMemories {
 public:
  explicit DeviceMemories(OpenDevice& device) : device_(device) {}
  ~DeviceMemories() {
    table_.destroy_all([&](Dm& dm) {
      if (device_.inherited()) dm.memory->abandon();
    });
  }

  Result<ibv_dm*> alloc(const ibv_alloc_dm_attr& attr);
  int free(ibv_dm* dm);

  // Returns the device memory with this handle, for import by another context, or null if there is none.
  std::shared_ptr<DeviceMemory> find(uint32_t handle);
  ibv_dm* import(std::shared_ptr<DeviceMemory> memory, uint32_t handle);
  // Imports memory that another process has allocated in this context's command file. Returns ENOENT if no
  // memory in the file has this handle.
  Result<ibv_dm*> import_foreign(uint32_t handle);
  void unimport(ibv_dm* dm) { table_.destroy(Dm::of(dm)); }

 private:
  OpenDevice& device_;
  ObjectTable<Dm> table_;
};

}  // namespace verbena::adapter
