// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/status_mapping.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"

namespace verbena::engine {
namespace {

using protocol::StatusPage;

constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// How much of a file can be mapped without ever giving SIGBUS: if it is large enough and stays so all of the
// page, or all but what an older agent knows nothing of: octets, traces, objects, and paths. Zero: nothing.
size_t safe_bytes(int fd) {
  struct stat file;
  if (::fstat(fd, &file) != 0) return 0;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return 0;
  for (const size_t bytes :
       {sizeof(StatusPage), protocol::kStatusBytesWithoutPeers, protocol::kStatusBytesWithoutSecret,
        protocol::kStatusBytesWithoutMore, protocol::kStatusBytesWithoutTraces,
        protocol::kStatusBytesWithoutObjects, protocol::kStatusBytesWithoutPaths}) {
    if (file.st_size >= static_cast<off_t>(bytes)) return bytes;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<StatusMapping>> StatusMapping::create(int fd) {
  const size_t shared = safe_bytes(fd);
  if (shared == 0) log_warning("the agent gave no usable status page: this process is not shown in full");
  void* const at = ::mmap(nullptr, sizeof(StatusPage), kAccess, kPrivate, -1, 0);
  if (at == MAP_FAILED) return fail(errno);
  auto mapping = std::make_unique<StatusMapping>(static_cast<StatusPage*>(at));
  if (shared != 0 && ::mmap(at, shared, kAccess, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return fail(errno);
  }
  mapping->page().magic.store(StatusPage::kMagic, std::memory_order_relaxed);
  return mapping;
}

StatusMapping::~StatusMapping() {
  ::munmap(page_, sizeof(StatusPage));
}

void StatusMapping::detach() {
  ::mmap(page_, sizeof(StatusPage), kAccess, kPrivate | MAP_FIXED, -1, 0);
}

}  // namespace verbena::engine
