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

// A completion counter (ibv_create_comp_cntr(3)).
struct CompletionCounter : provider::CompletionCounter {
  using Abi = provider::CompletionCounter;
  static CompletionCounter& of(Abi* counter) { return *static_cast<CompletionCounter*>(counter); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  std::shared_ptr<transport::CompletionCount> count;  // shared with the transport of each attached QP
  Uses uses;                                          // by attached QPs
};

// Creates and owns the completion counters of a context. The transport counts a QP's completed SENDs, RDMA
// READs, RDMA WRITEs and receive requests, signaled or not. It counts no READs and WRITEs of the peer: on one
// host the peer carries them out itself. Thread-safe.
class CompletionCounters {
 public:
  explicit CompletionCounters(OpenDevice& device) : device_(device) {}

  static provider::CompletionCounterCaps caps();
  // EOPNOTSUPP: unknown fields, flags or type.
  Result<provider::CompletionCounter*> create(const provider::CompletionCounterInitAttr& attr);
  // EBUSY while the counter is attached to a QP.
  int destroy(provider::CompletionCounter* counter);
  // Makes the QP's requests of the kinds in `requests` add to the counter. EINVAL: the QP is in neither RESET
  // nor INIT, or `requests` is 0. EBUSY: another counter has one of these kinds. EOPNOTSUPP: unknown kinds,
  // or a raw QP.
  int attach(ibv_qp* qp, provider::CompletionCounter* counter, uint32_t requests);

 private:
  OpenDevice& device_;
  ObjectTable<CompletionCounter> table_{object_limits().comp_counters};
};

}  // namespace verbena::adapter
