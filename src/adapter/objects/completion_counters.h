// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/user_count.h"
#include "adapter/transport/completion_counts.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::adapter {

struct CompletionCounter : provider::CompletionCounter {
  using Abi = provider::CompletionCounter;
  static CompletionCounter& of(Abi* counter) { return *static_cast<CompletionCounter*>(counter); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  std::shared_ptr<transport::CompletionCount> count;  // a QP's transport holds it while it may complete
  Uses uses;                                          // by the QPs that it is attached to
};

// The completion counters of a context. The transport counts what a QP's own requests and receive requests
// come to, signaled or not. It does not count the peer's READs and WRITEs: on one host the peer carries them
// out itself.
class CompletionCounters {
 public:
  explicit CompletionCounters(OpenDevice& device) : device_(device) {}

  static provider::CompletionCounterCaps caps();
  // EOPNOTSUPP: unknown fields, flags or type.
  Result<provider::CompletionCounter*> create(const provider::CompletionCounterInitAttr& attr);
  // EBUSY while a QP has it.
  int destroy(provider::CompletionCounter* counter);
  // From now on the QP's requests of these kinds add to the counter. EINVAL: the QP is in neither RESET nor
  // INIT. EBUSY: another counter has one of these kinds. EOPNOTSUPP: kinds, or a QP, that are not counted.
  int attach(ibv_qp* qp, provider::CompletionCounter* counter, uint32_t requests);

 private:
  OpenDevice& device_;
  ObjectTable<CompletionCounter> table_{object_limits().comp_counters};
};

}  // namespace verbena::adapter
