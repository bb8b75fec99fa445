// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::memory {

// The source of a test's dma-bufs.
enum class Exporter {
  kUdmabuf,   // the kernel's /dev/udmabuf: real dma-bufs
  kEmulated,  // a memfd with a special name, for which a replacement of fstatfs(2) answers as for a dma-buf
};

struct ExportedBuffer {
  UniqueFd memory;   // the exporter's pages, to be read, written and mapped
  UniqueFd dma_buf;  // the dma-buf to be passed on
};

// Creates a zeroed buffer of whole pages with at least `bytes` bytes. Any thread may call it. EINVAL for 0
// bytes; otherwise errors of memfd_create(2) or /dev/udmabuf, such as ENOENT or EACCES without udmabuf.
Result<ExportedBuffer> export_buffer(uint64_t bytes, Exporter exporter);

// Uses the kernel if possible, else the emulation. An emulated buffer differs from a dma-buf: /proc/self/fd
// shows a memfd, and read(2) and write(2) work.
Result<ExportedBuffer> export_buffer(uint64_t bytes);

}  // namespace verbena::memory
