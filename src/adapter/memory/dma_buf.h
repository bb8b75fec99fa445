// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"

namespace verbena::memory {

// Maps bytes [offset, offset + length) of a dma-buf. Fails as ibv_reg_dmabuf_mr(3) does in the kernel. EBADF:
// not a descriptor. EINVAL: not a dma-buf, or the range leaves the buffer. EOPNOTSUPP: its exporter cannot
// map it, so no processor can see its memory. EACCES: `writable`, and the descriptor is not open for writing.
Result<FileMapping> map_dma_buf(int fd, uint64_t offset, uint64_t length, bool writable);

}  // namespace verbena::memory
