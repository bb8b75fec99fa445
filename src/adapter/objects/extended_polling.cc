// SPDX-License-Identifier: Apache-2.0
// Extended polling, entry by entry: see ibv_create_cq_ex(3). Entries are read in place.
#include "adapter/objects/extended_polling.h"

#include <cerrno>

#include "adapter/objects/completion_queues.h"

namespace verbena::adapter {
namespace {

using queues::Completion;

Cq& object(ibv_cq_ex* cq) {
  return Cq::of(ibv_cq_ex_to_cq(cq));
}

const Completion& entry(ibv_cq_ex* cq) {
  return *object(cq).current;
}

void show(Cq& cq, const Completion& entry) {
  cq.current = &entry;
  cq.wr_id = entry.wr_id;
  cq.status = static_cast<ibv_wc_status>(entry.status);
}

int start_poll(ibv_cq_ex* abi, ibv_poll_cq_attr* attr) {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  Cq& cq = object(abi);
  const Completion* first = cq.queue->begin_batch();
  if (first == nullptr) {
    cq.drive();
    first = cq.queue->begin_batch();
    if (first == nullptr) return cq.queue->in_error() && cq.queue->empty() ? EIO : ENOENT;
  }
  show(cq, *first);
  return 0;
}

int next_poll(ibv_cq_ex* abi) {
  Cq& cq = object(abi);
  const Completion* next = cq.queue->next_in_batch();
  if (next == nullptr) return ENOENT;
  show(cq, *next);
  return 0;
}

void end_poll(ibv_cq_ex* abi) {
  object(abi).queue->end_batch();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(entry(cq).read_opcode());
}

// Reads a field of the entry.
template <auto field, class Value>
Value read(ibv_cq_ex* cq) {
  return entry(cq).*field;
}

// Reads 0: a RoCE port has no LIDs.
template <class Value>
Value read_nothing(ibv_cq_ex*) {
  return 0;
}

void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
  info->tag = entry(cq).tag;
  info->priv = entry(cq).tag_private;
}

}  // namespace

// Functions for fields that were not requested stay null, as in rdma-core's providers.
void fill_extended_polling(ibv_cq_ex& cq, uint64_t fields) {
  const auto fill = [fields](auto& function, uint64_t field, auto with) {
    if ((fields & field) != 0) function = with;
  };
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read<&Completion::vendor_err, uint32_t>;
  cq.read_wc_flags = read<&Completion::wc_flags, unsigned>;
  fill(cq.read_byte_len, IBV_WC_EX_WITH_BYTE_LEN, read<&Completion::byte_len, uint32_t>);
  fill(cq.read_imm_data, IBV_WC_EX_WITH_IMM, read<&Completion::imm_data, __be32>);
  fill(cq.read_qp_num, IBV_WC_EX_WITH_QP_NUM, read<&Completion::qp_num, uint32_t>);
  fill(cq.read_src_qp, IBV_WC_EX_WITH_SRC_QP, read<&Completion::src_qp, uint32_t>);
  fill(cq.read_slid, IBV_WC_EX_WITH_SLID, read_nothing<uint32_t>);
  fill(cq.read_sl, IBV_WC_EX_WITH_SL, read<&Completion::sl, uint8_t>);
  fill(cq.read_dlid_path_bits, IBV_WC_EX_WITH_DLID_PATH_BITS, read_nothing<uint8_t>);
  fill(cq.read_completion_ts, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, read<&Completion::timestamp, uint64_t>);
  fill(cq.read_completion_wallclock_ns, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
       read<&Completion::wallclock, uint64_t>);
  fill(cq.read_cvlan, IBV_WC_EX_WITH_CVLAN, read<&Completion::cvlan, uint16_t>);
  fill(cq.read_flow_tag, IBV_WC_EX_WITH_FLOW_TAG, read<&Completion::flow_tag, uint32_t>);
  fill(cq.read_tm_info, IBV_WC_EX_WITH_TM_INFO, read_tm_info);
}

}  // namespace verbena::adapter
