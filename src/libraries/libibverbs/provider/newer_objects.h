// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

// Structs and enumerators that verbs.h has since rdma-core 59 and 65. They have names of our own, because the
// headers of the build may or may not define them.
namespace verbena::provider {

// ibv_dmah: a DMA handle. Tells a device how to write to a memory region (PCIe TLP processing hints).
struct DmaHandle {
  ibv_context* context;
};

// ibv_dmah_init_attr
struct DmaHandleInitAttr {
  uint32_t comp_mask;
  uint32_t cpu_id;
  uint8_t ph;
  uint8_t tph_mem_type;
};
static_assert(sizeof(DmaHandleInitAttr) == 12 && offsetof(DmaHandleInitAttr, tph_mem_type) == 9);

// enum ibv_dmah_init_attr_mask
inline constexpr uint32_t kDmaHandleCpu = 1 << 0;
inline constexpr uint32_t kDmaHandleHint = 1 << 1;
inline constexpr uint32_t kDmaHandleMemory = 1 << 2;

// ibv_comp_cntr: a completion counter. Also counts requests that create no entry in a completion queue.
struct CompletionCounter {
  ibv_context* context;
  uint32_t handle;
};
static_assert(sizeof(CompletionCounter) == 16 && offsetof(CompletionCounter, handle) == 8);

// ibv_comp_cntr_caps
struct CompletionCounterCaps {
  uint64_t max_value;
  uint32_t max_counters;
  uint32_t supported_qp_attach_ops;
};
static_assert(sizeof(CompletionCounterCaps) == 16 &&
              offsetof(CompletionCounterCaps, supported_qp_attach_ops) == 12);

// ibv_comp_cntr_init_attr
struct CompletionCounterInitAttr {
  uint32_t comp_mask;
  int type;  // enum ibv_comp_cntr_type
  uint32_t flags;
};
static_assert(sizeof(CompletionCounterInitAttr) == 12 && offsetof(CompletionCounterInitAttr, flags) == 8);

// enum ibv_comp_cntr_type
inline constexpr int kCountsRequests = 0;
inline constexpr int kCountsBytes = 1;

// ibv_qp_attach_comp_cntr_attr
struct AttachCounterAttr {
  uint32_t comp_mask;
  uint32_t op_mask;
};
static_assert(sizeof(AttachCounterAttr) == 8 && offsetof(AttachCounterAttr, op_mask) == 4);

// enum ibv_qp_attach_comp_cntr_op
inline constexpr uint32_t kCountSend = 1 << 0;
inline constexpr uint32_t kCountReceive = 1 << 1;
inline constexpr uint32_t kCountRead = 1 << 2;
inline constexpr uint32_t kCountRemoteRead = 1 << 3;
inline constexpr uint32_t kCountWrite = 1 << 4;
inline constexpr uint32_t kCountRemoteWrite = 1 << 5;

}  // namespace verbena::provider

namespace verbena::verbs {

// Structs that are newer than the verbs.h of the build. Their layout is the ABI of IBVERBS_1.15 and 1.17.

// ibv_buf: opaque to applications
struct Buffer {
  // `context` and `pd_handle` identify the protection domain. A parent domain has the handle of the domain
  // that it was made of.
  ibv_context* context;
  uint32_t pd_handle;
  void* addr;
  size_t size;
};

// ibv_mr_init_attr
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  provider::DmaHandle* dmah;
  Buffer* buf;
};
static_assert(sizeof(MrInitAttr) == 72);

// enum ibv_mr_init_attr_mask
inline constexpr uint64_t kRegMrIova = 1 << 0;
inline constexpr uint64_t kRegMrAddr = 1 << 1;
inline constexpr uint64_t kRegMrFd = 1 << 2;
inline constexpr uint64_t kRegMrFdOffset = 1 << 3;
inline constexpr uint64_t kRegMrDmaHandle = 1 << 4;
inline constexpr uint64_t kRegMrBuf = 1 << 5;

}  // namespace verbena::verbs
