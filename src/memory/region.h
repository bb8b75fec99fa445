// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::memory {

// Rights in a region: the bits of enum ibv_access_flags.
using Access = uint32_t;

// Identifies a protection domain: what a key and a QP must share.
using PdId = uint32_t;

// A registered stretch of user memory. Plain data; it owns neither the memory nor its key.
struct Region {
  std::byte* base = nullptr;  // where iova lies in this process
  uint64_t iova = 0;          // what remote and local addresses are relative to
  uint64_t length = 0;
  Access access = 0;
  PdId pd = 0;
  uint32_t key = 0;
  void* owner = nullptr;  // the adapter's object

  // The bytes [address, address + bytes) in this process, or nullptr when they do not all lie in the region.
  // Zero bytes lie in it anywhere from its start to its end.
  std::byte* at(uint64_t address, uint64_t bytes) const {
    if (address < iova) return nullptr;
    const uint64_t offset = address - iova;
    if (offset > length || bytes > length - offset) return nullptr;
    return base + offset;
  }
};

// Checks that every page of [addr, addr + length) is mapped, and writable if `writable`, and brings the pages
// in, as pinning would. EFAULT when some page is not there or lacks the right, EINVAL when the range wraps.
// Length 0 is valid.
Result<void> check_pages(const void* addr, uint64_t length, bool writable);

}  // namespace verbena::memory
