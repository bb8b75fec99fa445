// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include <infiniband/verbs.h>

#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/registration.h"

namespace verbena::adapter {

// A memory region as the application knows it. With ibv_import_mr(3), several Mr share one Registration.
struct Mr : ibv_mr {
  using Abi = ibv_mr;
  static Mr& of(ibv_mr* mr) { return *static_cast<Mr*>(mr); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  std::shared_ptr<Registration> registration;
  bool imported = false;
};

// Creates and owns the memory regions of a context. Thread-safe.
class MemoryRegions {
 public:
  explicit MemoryRegions(OpenDevice& device) : device_(device) {}

  Result<ibv_mr*> reg(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access);
  Result<ibv_mr*> reg_dmabuf(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
  Result<ibv_mr*> reg_device_memory(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access);
  Result<ibv_mr*> alloc_null(ibv_pd* pd);
  int rereg(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access);
  int dereg(ibv_mr* mr);
  int advise(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, std::span<const ibv_sge> list);

  // Lists up to three regions of this PD for an error message, as "MR with lkey 0x11, MR with lkey 0x12".
  std::string regions_of(const ibv_pd* pd);

  // Returns the registration with this handle, for import by another context, or null if there is none.
  std::shared_ptr<Registration> find(uint32_t handle);
  ibv_mr* import(std::shared_ptr<Registration> registration, ibv_pd* pd, uint32_t handle);
  void unimport(ibv_mr* mr) { table_.destroy(Mr::of(mr)); }

  // Fills in the memory attributes of the device: limits, on-demand paging and the size of device memory.
  void fill_attributes(ibv_device_attr_ex& attr) const;

 private:
  // Enters the registration into the key table and creates the application's ibv_mr for it. REQUIRES:
  // registration->region is filled in
  Result<ibv_mr*> enter(std::shared_ptr<Registration> registration, ibv_pd* pd, void* addr);
  ibv_mr* add(std::unique_ptr<Mr> mr, std::shared_ptr<Registration> registration, ibv_pd* pd, void* addr,
              uint32_t handle);

  OpenDevice& device_;
  ObjectTable<Mr> table_{object_limits().mrs};
};

}  // namespace verbena::adapter
