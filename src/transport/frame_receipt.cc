// SPDX-License-Identifier: Apache-2.0
#include "transport/frame_receipt.h"

#include "transport/gather.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kVlanTagAt = 12;

ibv_wc completion_of(const queues::RecvWqe& wqe, const FrameReceiptConfig& config, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = wqe.wr_id;
  wc.opcode = IBV_WC_RECV;
  wc.status = status;
  wc.qp_num = config.number;
  return wc;
}

}  // namespace

FrameReceipt receive_frame(queues::RecvQueue& queue, const FrameReceiptConfig& config,
                           const IncomingFrame& frame) {
  if (queue.empty()) return FrameReceipt::kDropped;
  const bool strip = config.strips_vlan && frame.headers.key.has(ethernet::kVlan);
  const ConstBytes front = frame.bytes.first(strip ? kVlanTagAt : 0);
  const ConstBytes rest = frame.bytes.subspan(strip ? kVlanTagAt + ethernet::kVlanTagBytes : 0);
  const auto bytes = static_cast<uint32_t>(front.size() + rest.size());
  const queues::RecvWqe& wqe = queue.at(queue.consumed());
  if (total_length(wqe.sges()) < bytes) return FrameReceipt::kDropped;

  const auto store = [&](uint64_t offset, ConstBytes data) {
    return scatter(*config.keys, config.pd, wqe.sges(), offset, data) == ScatterResult::kDone;
  };
  const bool stored = store(0, front) && store(front.size(), rest);
  ibv_wc wc = completion_of(wqe, config, stored ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
  wc.byte_len = bytes;
  if (frame.checksums_good) wc.wc_flags |= IBV_WC_IP_CSUM_OK;
  queues::Completion completion(wc);
  completion.flow_tag = frame.flow_tag;
  if (strip) completion.cvlan = load_be<uint16_t>(frame.bytes.data() + kVlanTagAt + sizeof(uint16_t));
  queue.consume();
  if (!config.cq->push(completion, false)) return FrameReceipt::kLost;
  return stored ? FrameReceipt::kStored : FrameReceipt::kFault;
}

void flush_frame_receives(queues::RecvQueue& queue, const FrameReceiptConfig& config) {
  while (!queue.empty()) {
    config.cq->push(completion_of(queue.at(queue.consumed()), config, IBV_WC_WR_FLUSH_ERR), true);
    queue.consume();
  }
}

}  // namespace verbena::transport
