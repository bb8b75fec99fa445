// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/key_finder.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::transport {

// A frame that steering gives to a QP. Borrowed for the call.
struct IncomingFrame {
  ConstBytes bytes;
  const ethernet::FrameHeaders& headers;
  uint32_t flow_tag;    // of the rule it matched (IBV_FLOW_SPEC_ACTION_TAG), 0 without
  bool checksums_good;  // IBV_WC_IP_CSUM_OK
};

// What a receive queue for frames completes with.
struct FrameReceiptConfig {
  memory::PdId pd = 0;
  uint32_t number = 0;       // of the QP or WQ, for its completions
  bool strips_vlan = false;  // the outermost VLAN tag goes to the completion instead of memory
  queues::CompletionQueue* cq = nullptr;
};

enum class FrameReceipt : uint8_t {
  kStored,
  kDropped,  // no request, or one too short: a stranger's frame is no error of ours (as with UD)
  kLost,     // stored, but the completion queue is in error and nobody will know
  kFault,    // the request's memory is gone or its key does not allow writing: completed with that
};

// Stores a frame as the queue's next request says, and completes it.
FrameReceipt receive_frame(queues::RecvQueue& queue, const FrameReceiptConfig& config,
                           memory::KeyFinder& keys, const IncomingFrame& frame);

// Completes everything posted with IBV_WC_WR_FLUSH_ERR.
void flush_frame_receives(queues::RecvQueue& queue, const FrameReceiptConfig& config);

}  // namespace verbena::transport
