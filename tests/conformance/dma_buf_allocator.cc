// SPDX-License-Identifier: Apache-2.0
// The functions by which pyverbs allocates dma-bufs from a graphics device (pyverbs/dmabuf_alloc.h), for
// machines without one. Debian builds pyverbs without DRM: its own functions only fail with EOPNOTSUPP, on
// any machine. When preloaded, these replace them, because pyverbs' module calls them by name. The device has
// the number 0, and memory of one kind.
#include <cerrno>
#include <new>

#include "adapter/memory/dma_buf_exporter.h"

#define PYVERBS_CALLS extern "C" [[gnu::visibility("default")]]

struct dmabuf {
  verbena::memory::ExportedBuffer buffer;
};

PYVERBS_CALLS dmabuf* dmabuf_alloc(uint64_t size, int gpu, int /*gtt*/) {
  if (gpu != 0) {
    errno = ENOENT;
    return nullptr;
  }
  auto exported = verbena::memory::export_buffer(size);
  if (!exported) {
    errno = exported.error().code;
    return nullptr;
  }
  auto* allocated = new (std::nothrow) dmabuf{std::move(*exported)};
  if (allocated == nullptr) errno = ENOMEM;
  return allocated;
}

PYVERBS_CALLS void dmabuf_free(dmabuf* allocated) {
  delete allocated;
}

// The device from which pyverbs maps the buffer.
PYVERBS_CALLS int dmabuf_get_drm_fd(dmabuf* allocated) {
  return allocated != nullptr ? allocated->buffer.memory.get() : -1;
}

PYVERBS_CALLS int dmabuf_get_fd(dmabuf* allocated) {
  return allocated != nullptr ? allocated->buffer.dma_buf.get() : -1;
}

// The buffer's offset for mmap(2) of the device.
PYVERBS_CALLS uint64_t dmabuf_get_offset(dmabuf* allocated) {
  return allocated != nullptr ? 0 : UINT64_MAX;
}
