// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"
#include "adapter/objects/counters.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"

namespace verbena::adapter {

struct Qp;

// An installed flow rule (ibv_create_flow(3)), which steers received frames to a raw QP or drops them.
struct Flow : ibv_flow {
  using Abi = ibv_flow;
  static Flow& of(ibv_flow* flow) { return *static_cast<Flow*>(flow); }

  ListHook owned;
  provider::LiveObject live;
  engine::FlowTarget target;
  Qp* qp = nullptr;
  Counters* counters = nullptr;
};

// Creates and owns the flow rules of a context. Thread-safe.
class Flows {
 public:
  explicit Flows(OpenDevice& device) : device_(device) {}
  ~Flows() {
    table_.destroy_all([&](Flow& flow) { uproot(flow); });
  }

  Result<ibv_flow*> create(ibv_qp* qp, const ibv_flow_attr& attr);
  int destroy(ibv_flow* flow);

 private:
  // Removes the rule from the steering table. Called before the Flow is destroyed.
  void uproot(Flow& flow);

  OpenDevice& device_;
  ObjectTable<Flow> table_;
};

}  // namespace verbena::adapter
