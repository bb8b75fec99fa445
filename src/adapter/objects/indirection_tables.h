// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/receive_work_queues.h"

namespace verbena::adapter {

// A table of the receive queues over which a raw QP spreads its packets (ibv_create_rwq_ind_table(3)).
struct RwqIndTable : ibv_rwq_ind_table {
  using Abi = ibv_rwq_ind_table;
  static RwqIndTable& of(ibv_rwq_ind_table* table) { return *static_cast<RwqIndTable*>(table); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  std::vector<Wq*> queues;         // their number is a power of two
  std::atomic<uint32_t> users{0};  // QPs that spread packets over this table
};

// Creates and owns the indirection tables of a context. Thread-safe.
class IndirectionTables {
 public:
  explicit IndirectionTables(OpenDevice& device) : device_(device) {}

  Result<ibv_rwq_ind_table*> create(const ibv_rwq_ind_table_init_attr& attr);
  int destroy(ibv_rwq_ind_table* table);

 private:
  OpenDevice& device_;
  ObjectTable<RwqIndTable> table_{object_limits().rwq_tables};
};

}  // namespace verbena::adapter
