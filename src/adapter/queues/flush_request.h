// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"

namespace verbena::queues {

// Numbers of RDMA FLUSH in verbs.h of rdma-core 45 and later. Older headers, like those we build with, do not
// use them.
inline constexpr uint8_t kFlushOpcode = 14;                              // IBV_WR_FLUSH
inline constexpr auto kFlushCompletion = static_cast<ibv_wc_opcode>(8);  // IBV_WC_FLUSH
inline constexpr uint32_t kFlushOperation = 1u << 11;                    // IBV_QP_EX_WITH_FLUSH
static_assert(kFlushOpcode > IBV_WR_DRIVER1 && kFlushOpcode < IBV_WR_ATOMIC_WRITE);

// Parameters of a FLUSH.
struct FlushRange {
  uint64_t address;
  uint64_t length;
  uint32_t rkey;
  uint8_t placement;    // see adapter/memory/placement.h
  uint8_t selectivity;  // see adapter/memory/placement.h
};

// Read and write the parameters of a FLUSH request. They are stored in the fields for remote memory and
// atomic operands.
inline FlushRange flush_range(const SendWqe& wqe) {
  return {wqe.remote_address, wqe.compare_add, wqe.rkey, static_cast<uint8_t>(wqe.swap),
          static_cast<uint8_t>(wqe.swap >> 8)};
}
inline void set_flush_range(SendWqe& wqe, const FlushRange& range) {
  wqe.remote_address = range.address;
  wqe.compare_add = range.length;
  wqe.rkey = range.rkey;
  wqe.swap = uint64_t{range.selectivity} << 8 | range.placement;
}

}  // namespace verbena::queues
