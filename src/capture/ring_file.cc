// SPDX-License-Identifier: Apache-2.0
#include "capture/ring_file.h"

#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::capture {
namespace {

constexpr size_t kBytes = sizeof(RingMemory);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool has_sealed_size(int file) {
  struct stat found;
  if (::fstat(file, &found) != 0 || found.st_size != static_cast<off_t>(kBytes)) return false;
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace

Result<UniqueFd> make_ring_file(uint32_t snap_bytes) {
  UniqueFd file(::memfd_create("verbena-capture", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return fail(errno);
  // All of it now: memory that is short later would be a SIGBUS in the process that sends.
  if (const int error = ::posix_fallocate(file.get(), 0, kBytes); error != 0) return fail(error);
  const uint32_t beginning[] = {kRingMagic, kRingVersion, snap_bytes};
  static_assert(offsetof(RingMemory, magic) == 0 && offsetof(RingMemory, version) == 4 &&
                offsetof(RingMemory, snap_bytes) == 8);
  const ssize_t put = ::pwrite(file.get(), beginning, sizeof beginning, 0);
  if (put != static_cast<ssize_t>(sizeof beginning)) return fail(put < 0 ? errno : EIO);
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return fail(errno);
  return file;
}

Result<RingMapping> RingMapping::map(int file) {
  if (!has_sealed_size(file)) return fail(EPROTO);
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return fail(errno);
  RingMapping mapping(static_cast<RingMemory*>(at));
  const RingMemory& ring = mapping.memory();
  if (ring.magic != kRingMagic || ring.version != kRingVersion) return fail(EPROTO);
  return mapping;
}

RingMapping::~RingMapping() {
  if (ring_ != nullptr) ::munmap(ring_, kBytes);
}

}  // namespace verbena::capture
