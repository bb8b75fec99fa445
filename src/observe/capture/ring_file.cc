// SPDX-License-Identifier: Apache-2.0
#include "observe/capture/ring_file.h"

#include <cerrno>

#include <sys/mman.h>
#include <unistd.h>

#include "base/sealed_file.h"

namespace verbena::capture {
namespace {

constexpr size_t kBytes = sizeof(RingMemory);

}  // namespace

Result<UniqueFd> make_ring_file(uint32_t snap_bytes) {
  auto file = make_memory_file("verbena-capture", kBytes);
  if (!file) return file;
  const uint32_t beginning[] = {kRingMagic, kRingVersion, snap_bytes};
  static_assert(offsetof(RingMemory, magic) == 0 && offsetof(RingMemory, version) == 4 &&
                offsetof(RingMemory, snap_bytes) == 8);
  const ssize_t put = ::pwrite(file->get(), beginning, sizeof beginning, 0);
  if (put != static_cast<ssize_t>(sizeof beginning)) return fail(put < 0 ? errno : EIO);
  if (const auto sealed = seal_size(file->get()); !sealed) return fail(sealed.error().code);
  return file;
}

Result<RingMapping> RingMapping::map(int file) {
  if (!has_sealed_size(file, kBytes)) return fail(EPROTO);
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
