// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"

namespace verbena::adapter {

// A set of packet and byte counters to which flow rules add (ibv_create_counters(3)).
struct Counters : ibv_counters {
  using Abi = ibv_counters;
  static Counters& of(ibv_counters* counters) { return *static_cast<Counters*>(counters); }

  // One counter and the index at which ibv_read_counters(3) returns its value.
  struct Point {
    ibv_counter_description what;
    uint32_t index;
  };

  ListHook owned;
  provider::LiveObject live;
  engine::FlowTotals totals;
  std::mutex attaching;
  std::vector<Point> points;
  std::atomic<uint32_t> users{0};  // flow rules that count here
};

// Creates and owns the flow counters of a context. Thread-safe.
class CounterSets {
 public:
  explicit CounterSets(OpenDevice& device) : device_(device) {}

  Result<ibv_counters*> create(const ibv_counters_init_attr& attr);
  int destroy(ibv_counters* counters);
  int attach(ibv_counters* counters, const ibv_counter_attach_attr& attr, const ibv_flow* flow);
  int read(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags);

 private:
  OpenDevice& device_;
  ObjectTable<Counters> table_;
};

}  // namespace verbena::adapter
