// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/file_mapping.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include "base/failed_call.h"

namespace verbena::memory {

namespace {

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

// dma-bufs have a file system of their own, which holds nothing else.
Result<uint64_t> size_of_dma_buf(int fd) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return fail(errno);
  if (static_cast<uint64_t>(system.f_type) != DMA_BUF_MAGIC)
    return fail(because(EINVAL, "fd {} is no dma-buf", fd));
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size < 0) return fail(because(EINVAL, "the dma-buf of fd {} does not tell its size", fd));
  return static_cast<uint64_t>(size);
}

}  // namespace

Result<FileMapping> map_dma_buf(int fd, uint64_t offset, uint64_t length, bool writable) {
  const auto size = size_of_dma_buf(fd);
  if (!size) return tl::unexpected(size.error());
  if (length == 0 || offset > *size || length > *size - offset)
    return fail(because(EINVAL, "{} bytes at offset {} are not within the dma-buf, which has {}", length,
                        offset, *size));
  auto mapping = FileMapping::create(fd, offset, length, writable);
  if (mapping) return mapping;
  const int code = mapping.error().code;
  return fail(code == ENOMEM || code == EACCES || code == EAGAIN ? code : EOPNOTSUPP);
}

}  // namespace verbena::memory
