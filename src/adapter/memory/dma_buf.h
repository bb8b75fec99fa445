// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"

namespace verbena::memory {

// Maps bytes [offset, offset + length) of a dma-buf. As ibv_reg_dmabuf_mr(3) fails in the kernel: EBADF for
// no descriptor, EINVAL for one of something else, or a range that leaves the buffer. EOPNOTSUPP when its
// exporter has no way to map it: such memory no processor sees. EACCES when it is to be written and the
// descriptor is not open for writing.
Result<FileMapping> map_dma_buf(int fd, uint64_t offset, uint64_t length, bool writable);

}  // namespace verbena::memory
