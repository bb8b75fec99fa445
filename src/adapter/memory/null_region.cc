// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "adapter/memory/region.h"

namespace verbena::memory {
namespace {

// The longest message: no reader looks at more at once.
constexpr size_t kZeros = size_t{1} << 30;

// Zeros that cost only address space: pages that were never written are all the kernel's zero page. Never
// unmapped: one mapping serves all null regions.
std::byte* zeros() {
  static void* const at =
      ::mmap(nullptr, kZeros, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

Result<void> make_null(Region& region, PdId pd) {
  region.kind = RegionKind::kNull;
  region.base = zeros();
  if (region.base == nullptr) return fail(ENOMEM);
  region.length = UINT64_MAX;
  region.access = IBV_ACCESS_LOCAL_WRITE;
  region.pd = pd;
  return {};
}

}  // namespace verbena::memory
