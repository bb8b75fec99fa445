// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/key_finder.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::transport {

// A raw Ethernet frame that flow steering delivers to a QP. Its memory is valid only during the call.
struct IncomingFrame {
  ConstBytes bytes;
  const ethernet::FrameHeaders& headers;
  uint32_t flow_tag;    // of the matching rule (IBV_FLOW_SPEC_ACTION_TAG); 0: none
  bool checksums_good;  // IBV_WC_IP_CSUM_OK
};

// How a receive queue for frames completes its requests.
struct FrameReceiptConfig {
  memory::PdId pd = 0;
  uint32_t number = 0;       // of the QP or WQ, for its completions
  bool strips_vlan = false;  // move the outermost VLAN tag to the completion
  queues::CompletionQueue* cq = nullptr;
};

enum class FrameReceipt : uint8_t {
  kStored,
  kDropped,  // no request, or one too short: as with UD, a stranger's frame is not our error
  kLost,     // stored, but the completion is lost, as the completion queue is in error
  kFault,    // the request's memory is gone or not writable: completed with an error
};

// Stores a frame in the next receive request of the queue, and completes that request.
FrameReceipt receive_frame(queues::RecvQueue& queue, const FrameReceiptConfig& config,
                           memory::KeyFinder& keys, const IncomingFrame& frame);

// Completes all posted requests with IBV_WC_WR_FLUSH_ERR.
void flush_frame_receives(queues::RecvQueue& queue, const FrameReceiptConfig& config);

}  // namespace verbena::transport
