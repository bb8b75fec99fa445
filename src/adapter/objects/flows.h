// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"
#include "adapter/objects/counters.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"

namespace verbena::adapter {

struct Qp;

struct Flow : ibv_flow {
  using Abi = ibv_flow;
  static Flow& of(ibv_flow* flow) { return *static_cast<Flow*>(flow); }

  ListHook owned;
  provider::LiveObject live;
  engine::FlowTarget target;
  Qp* qp = nullptr;
  Counters* counters = nullptr;
};

// The flow rules of a context: which frames go to which of its raw QPs.
class Flows {
 public:
  explicit Flows(OpenDevice& device) : device_(device) {}
  ~Flows() {
    table_.destroy_all([&](Flow& flow) { uproot(flow); });
  }

  Result<ibv_flow*> create(ibv_qp* qp, const ibv_flow_attr& attr);
  int destroy(ibv_flow* flow);

 private:
  // It steers nothing any more.
  void uproot(Flow& flow);

  OpenDevice& device_;
  ObjectTable<Flow> table_;
};

}  // namespace verbena::adapter
