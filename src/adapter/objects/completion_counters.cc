// SPDX-License-Identifier: Apache-2.0

#include "adapter/objects/qp.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

using provider::CompletionCounterCaps;
using provider::CompletionCounterInitAttr;
using provider::kCountRead;
using provider::kCountReceive;
using provider::kCountsBytes;
using provider::kCountSend;
using provider::kCountsRequests;
using provider::kCountWrite;

struct CountedKind {
  uint32_t flag;
  transport::CountedRequest counted;
};
constexpr CountedKind kCountedKinds[] = {
    {kCountSend, transport::kCountedSend},
    {kCountReceive, transport::kCountedReceive},
    {kCountRead, transport::kCountedRead},
    {kCountWrite, transport::kCountedWrite},
};
constexpr uint32_t kCountedFlags = kCountSend | kCountReceive | kCountRead | kCountWrite;

}  // namespace

int SoftwareContext::query_comp_cntr_caps(CompletionCounterCaps& caps) {
  caps = {UINT64_MAX, kMaxCompletionCounters, kCountedFlags};
  return 0;
}

Result<provider::CompletionCounter*> SoftwareContext::create_comp_cntr(
    const CompletionCounterInitAttr& attr) {
  if (device_->is_gone()) return fail(EIO);
  if (attr.comp_mask != 0 || attr.flags != 0 || (attr.type != kCountsRequests && attr.type != kCountsBytes))
    return fail(because(EOPNOTSUPP, "comp_mask {:#x} or flags {:#x} are not 0, or type {} is unknown",
                        attr.comp_mask, attr.flags, attr.type));
  auto counter = completion_counters_.make(*device_);
  if (!counter) return tl::unexpected(counter.error());
  (*counter)->handle = device_->next_handle();
  (*counter)->count = std::make_shared<transport::CompletionCount>(attr.type == kCountsBytes);
  return completion_counters_.add(std::move(*counter));
}

int SoftwareContext::destroy_comp_cntr(provider::CompletionCounter* abi) {
  CompletionCounter& counter = CompletionCounter::of(abi);
  if (const long users = counter.uses.count(); users != 0)
    return because(EBUSY, "it is attached to {} queue pairs", users);
  completion_counters_.destroy(counter);
  return 0;
}

std::atomic<uint64_t>& SoftwareContext::comp_cntr_value(provider::CompletionCounter* counter, bool errors) {
  transport::CompletionCount& count = *CompletionCounter::of(counter).count;
  return errors ? count.failed : count.completed;
}

// Unknown kinds of requests and raw QPs are EOPNOTSUPP.
int SoftwareContext::attach_comp_cntr(ibv_qp* abi_qp, provider::CompletionCounter* abi, uint32_t requests) {
  if (requests == 0) return because(EINVAL, "op_mask is 0");
  if ((requests & ~kCountedFlags) != 0)
    return because(EOPNOTSUPP, "op_mask {:#x}: bits {:#x} are not counted", requests,
                   requests & ~kCountedFlags);
  Qp& qp = Qp::of(abi_qp);
  if (qp.raw != nullptr)
    return because(EOPNOTSUPP, "queue pairs for raw packets have no completion counters");
  CompletionCounter& counter = CompletionCounter::of(abi);
  const std::lock_guard modifying(qp.modifying);
  return qp.shard.exclusively([&]() -> int {
    const ibv_qp_state state = qp.transport->state();
    if (state != IBV_QPS_RESET && state != IBV_QPS_INIT)
      return because(EINVAL, "the queue pair is in neither RESET nor INIT");
    transport::CompletionCounts counts = qp.transport->completion_counts();
    for (const CountedKind& kind : kCountedKinds) {
      if ((requests & kind.flag) == 0) continue;
      if (counts[kind.counted] != nullptr)
        return because(EBUSY, "op_mask {:#x}: another counter has {:#x}", requests, kind.flag);
      counts[kind.counted] = counter.count;
    }
    qp.transport->set_completion_counts(counts);
    qp.counters.push_back(counter.uses.add());
    return 0;
  });
}

}  // namespace verbena::adapter
