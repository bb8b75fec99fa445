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
  Uses uses;                                          // one for each attach(), held by the QP
};

// Creates and owns the completion counters of a context. A counter adds up the requests, or the bytes, of
// completed SENDs, RDMA READs, RDMA WRITEs and receive requests of its QPs, signaled or not. READs and WRITEs
// that the peer requests are not counted, because on one host the peer carries them out without this process.
// Thread-safe.
class CompletionCounters {
 public:
  explicit CompletionCounters(OpenDevice& device) : device_(device) {}

  static provider::CompletionCounterCaps caps();
  // Creates a counter. Errors: EOPNOTSUPP if `attr` has unknown fields, flags or type; EIO if the link was
  // deleted; ENOMEM at kMaxCompletionCounters.
  Result<provider::CompletionCounter*> create(const provider::CompletionCounterInitAttr& attr);
  // Destroys the counter. Returns EBUSY while the counter is attached to a QP, else 0.
  int destroy(provider::CompletionCounter* counter);
  // Attaches the counter to the QP for the kinds of requests in the bit mask `requests`. Returns EINVAL if
  // `requests` is 0 or the QP is in neither RESET nor INIT. Returns EBUSY if the QP already has a counter for
  // one of the kinds. Returns EOPNOTSUPP for unknown kinds or a raw QP.
  int attach(ibv_qp* qp, provider::CompletionCounter* counter, uint32_t requests);

 private:
  OpenDevice& device_;
  ObjectTable<CompletionCounter> table_{object_limits().comp_counters};
};

}  // namespace verbena::adapter
