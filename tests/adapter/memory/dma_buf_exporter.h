// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::memory {

// Where a test has its dma-bufs from.
enum class Exporter {
  kUdmabuf,   // the kernel, by /dev/udmabuf: dma-bufs in every respect
  kEmulated,  // a memory file of a certain name, for which a stand-in for fstatfs(2) answers as for a dma-buf
};

struct ExportedBuffer {
  UniqueFd memory;   // its pages, as who made it has them: to be read, written and mapped
  UniqueFd dma_buf;  // what is given away
};

// A buffer of whole pages, all zeros, with at least so many bytes; for any thread. EINVAL for none. What
// memfd_create(2) and /dev/udmabuf answer where they fail: ENOENT or EACCES without udmabuf.
Result<ExportedBuffer> export_buffer(uint64_t bytes, Exporter exporter);

// By the kernel where it can, or else emulated: it differs in that who looks at the file, as by its name in
// /proc/self/fd, sees a memory file, and in that read(2) and write(2) work.
Result<ExportedBuffer> export_buffer(uint64_t bytes);

}  // namespace verbena::memory
