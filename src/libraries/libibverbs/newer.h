// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "libraries/libibverbs/provider/newer_objects.h"

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
