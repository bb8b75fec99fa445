// SPDX-License-Identifier: Apache-2.0
// Advice about on-demand memory: ibv_advise_mr(3). Every access goes through the process's page tables: pages
// that are present for the process are present for the device. So prefetching is the kernel's own.
#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/key_table.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

bool is_known(ibv_advise_mr_advice advice) {
  return advice == IBV_ADVISE_MR_ADVICE_PREFETCH || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
         advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
}

// The memory that the advice is about; null when it exceeds the region.
struct Range {
  std::byte* at = nullptr;
  uint64_t bytes = 0;
};

// Makes the checks of the kernel's mlx5, the only driver with this call. REQUIRES: the table's lock is held
Result<Range> find_range(const memory::KeyTable& keys, memory::PdId pd, const ibv_sge& sge, bool writable) {
  const memory::Region* region = keys.find(sge.lkey);
  if (region == nullptr || (region->access & IBV_ACCESS_ON_DEMAND) == 0) return fail(ENOENT);
  if (region->pd != pd) return fail(EPERM);
  if (writable && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return fail(EPERM);
  return Range{region->at(sge.addr, sge.length), sge.length};
}

// Starts to read pages from files or swap, without waiting.
void prefetch_later(const Range& range) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(range.at);
  const uintptr_t from = begin & ~(page - 1);
  if (range.bytes == 0 || range.bytes > UINTPTR_MAX - page - begin) return;
  ::madvise(reinterpret_cast<void*>(from), begin + range.bytes - from, MADV_WILLNEED);
}

}  // namespace

int SoftwareContext::advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags,
                               std::span<const ibv_sge> list) {
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0)
    return because(EINVAL, "flags {:#x} have bits that are unknown here", flags);
  if (list.empty()) return because(EINVAL, "num_sge is 0");
  if (!is_known(advice)) return EOPNOTSUPP;
  const bool writable = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const bool now = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
  for (const ibv_sge& sge : list) {
    memory::KeyTable& keys = device_->keys();
    const auto range = keys.locked([&] { return find_range(keys, Pd::of(pd).id, sge, writable); });
    if (!range) return range.error().code;
    // Advice that need not be followed at once cannot fail.
    if (range->at == nullptr) {
      if (now) return EFAULT;
    } else if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
      continue;
    } else if (!now) {
      prefetch_later(*range);
    } else if (auto present = memory::check_pages(range->at, range->bytes, writable); !present) {
      return present.error().code;
    }
  }
  return 0;
}

}  // namespace verbena::adapter
