// SPDX-License-Identifier: Apache-2.0
// Changes the list of tagged buffers of a shared receive queue with tag matching: ibv_post_srq_ops(3).
#include "adapter/objects/limits.h"
#include "adapter/objects/software_context.h"
#include "adapter/queues/tag_list.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

struct Outcome {
  int error = 0;  // errno value if the request could not be posted
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_TM_SYNC;
};

Outcome execute(queues::TagList& tags, ibv_ops_wr& wr) {
  if ((wr.flags & IBV_OPS_TM_SYNC) != 0) tags.synchronize(wr.tm.unexpected_cnt);
  switch (wr.opcode) {
    case IBV_WR_TAG_ADD: {
      const auto& add = wr.tm.add;
      if (add.num_sge < 0 || add.num_sge > kMaxSge)
        return {.error = because(EINVAL, "tm.add.num_sge {} is not within 0 to {}", add.num_sge, kMaxSge)};
      const auto handle =
          tags.add({add.tag, add.mask, add.recv_wr_id, {add.sg_list, static_cast<size_t>(add.num_sge)}});
      if (!handle) return {.error = handle.error().code};
      wr.tm.handle = *handle;
      return {.opcode = IBV_WC_TM_ADD};
    }
    case IBV_WR_TAG_DEL:
      // A message may have taken the buffer meanwhile.
      return {.status = tags.remove(wr.tm.handle) ? IBV_WC_SUCCESS : IBV_WC_TM_ERR, .opcode = IBV_WC_TM_DEL};
    case IBV_WR_TAG_SYNC:
      return {};
    default:
      return {.error = because(EINVAL, "there is no tag operation {}", static_cast<int>(wr.opcode))};
  }
}

}  // namespace

int SoftwareContext::post_srq_ops(ibv_srq* abi_srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  Srq& srq = Srq::of(abi_srq);
  if (srq.type != IBV_SRQT_TM) {
    *bad_wr = wr;
    return because(EINVAL, "the shared receive queue is not one with tag matching (IBV_SRQT_TM)");
  }
  return device_->home().exclusively([&] {
    queues::TagList& tags = *srq.queue->tags();
    for (; wr != nullptr; wr = wr->next) {
      const Outcome outcome = execute(tags, *wr);
      if (outcome.error != 0) {
        *bad_wr = wr;
        return outcome.error;
      }
      if ((wr->flags & IBV_OPS_SIGNALED) == 0 && outcome.status == IBV_WC_SUCCESS) continue;
      ibv_wc wc{};
      wc.wr_id = wr->wr_id;
      wc.status = outcome.status;
      wc.opcode = outcome.opcode;
      if (!tags.is_synchronized()) wc.wc_flags = IBV_WC_TM_SYNC_REQ;
      srq.queue->cq()->push(wc, true);
    }
    return 0;
  });
}

}  // namespace verbena::adapter
