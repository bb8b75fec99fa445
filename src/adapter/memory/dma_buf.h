// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"

namespace verbena::memory {

// Maps bytes [offset, offset + length) of a dma-buf. Fails as ibv_reg_dmabuf_mr(3) does in the kernel.
// Errors: EBADF if `fd` is not a descriptor. EINVAL if it is not a dma-buf, or if the range is empty or
// leaves the buffer. EOPNOTSUPP if the buffer's exporter cannot map it, so that no processor can see its
// memory. EACCES if `writable` is true and the descriptor is not open for writing. ENOMEM, EAGAIN.
Result<FileMapping> map_dma_buf(int fd, uint64_t offset, uint64_t length, bool writable);

}  // namespace verbena::memory
