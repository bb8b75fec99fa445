// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/dma_buf_exporter.h"

#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/interpose.h"

namespace verbena::memory {
namespace {

constexpr char kName[] = "verbena-emulated-dma-buf";
constexpr std::string_view kShownAs = "/memfd:verbena-emulated-dma-buf";

// Whether the file is one of ours, by its name. The name stays with the file through dup(2), fork(2) and
// SCM_RIGHTS.
bool is_emulated(int fd) {
  char link[32];
  char target[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<size_t>(length)).starts_with(kShownAs);
}

// Creates a memfd as udmabuf requires it: whole pages, and sealed against shrinking.
Result<UniqueFd> memory_of(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > INT64_MAX - page) return fail(EINVAL);
  const uint64_t whole = (bytes + page - 1) / page * page;
  UniqueFd file(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(whole)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return fail(errno);
  }
  return file;
}

Result<UniqueFd> udmabuf_of(int file) {
  const UniqueFd device(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  if (!device) return fail(errno);
  udmabuf_create request{};
  request.memfd = static_cast<uint32_t>(file);
  request.flags = UDMABUF_FLAGS_CLOEXEC;
  request.size = static_cast<uint64_t>(::lseek(file, 0, SEEK_END));
  UniqueFd dma_buf(::ioctl(device.get(), UDMABUF_CREATE, &request));
  if (!dma_buf) return fail(errno);
  return dma_buf;
}

Result<UniqueFd> emulation_of(int file) {
  UniqueFd dma_buf(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!dma_buf) return fail(errno);
  return dma_buf;
}

}  // namespace

Result<ExportedBuffer> export_buffer(uint64_t bytes, Exporter exporter) {
  auto memory = memory_of(bytes);
  if (!memory) return tl::unexpected(memory.error());
  auto dma_buf = exporter == Exporter::kUdmabuf ? udmabuf_of(memory->get()) : emulation_of(memory->get());
  if (!dma_buf) return tl::unexpected(dma_buf.error());
  return ExportedBuffer{std::move(*memory), std::move(*dma_buf)};
}

Result<ExportedBuffer> export_buffer(uint64_t bytes) {
  const bool has_udmabuf = ::access("/dev/udmabuf", R_OK | W_OK) == 0;
  return export_buffer(bytes, has_udmabuf ? Exporter::kUdmabuf : Exporter::kEmulated);
}

}  // namespace verbena::memory

INTERPOSE(int, fstatfs, (int fd, struct statfs* system)) {
  const int result = next_fstatfs(fd, system);
  if (result == 0 && verbena::memory::is_emulated(fd)) system->f_type = DMA_BUF_MAGIC;
  return result;
}

INTERPOSE(int, fstatfs64, (int fd, struct statfs64* system)) {
  const int result = next_fstatfs64(fd, system);
  if (result == 0 && verbena::memory::is_emulated(fd)) system->f_type = DMA_BUF_MAGIC;
  return result;
}
