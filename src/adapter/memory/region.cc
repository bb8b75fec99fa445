// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/region.h"

#include <cerrno>

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/memory/guarded.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena::memory {
namespace {

// A range of whole pages.
struct PageRange {
  uintptr_t begin;
  uintptr_t bytes;
};

uintptr_t page_size() {
  return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
}

int populate(PageRange range, bool writable) {
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  while (madvise(reinterpret_cast<void*>(range.begin), range.bytes, advice) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Linux has MADV_POPULATE_* since 5.14. Older kernels answer EINVAL, as newer ones do for missing rights.
bool kernel_can_populate() {
  enum class Answer : uint8_t { kUnknown, kYes, kNo };
  static constinit std::atomic<Answer> known{Answer::kUnknown};
  Answer answer = known.load(std::memory_order_relaxed);
  if (answer == Answer::kUnknown) {
    static const char sample = 0;
    const auto at = reinterpret_cast<uintptr_t>(&sample);
    answer = populate({at & ~(page_size() - 1), page_size()}, false) == 0 ? Answer::kYes : Answer::kNo;
    known.store(answer, std::memory_order_relaxed);
  }
  return answer == Answer::kYes;
}

// ENOMEM means a hole in the range, or that memory has run out. msync(MS_ASYNC) only looks for holes.
bool has_hole(PageRange range) {
  return msync(reinterpret_cast<void*>(range.begin), range.bytes, MS_ASYNC) != 0 && errno == ENOMEM;
}

// The bare instructions: a sanitizer must not be in the middle of its own work when one of them faults.
__attribute__((no_sanitize("thread"))) void touch(uintptr_t begin, uintptr_t bytes, bool writable) {
  for (uintptr_t offset = 0; offset < bytes; offset += page_size()) {
    auto* byte = reinterpret_cast<unsigned char*>(begin + offset);
    if (writable) {
      __atomic_fetch_or(byte, static_cast<unsigned char>(0), __ATOMIC_RELAXED);
    } else {
      [[maybe_unused]] const volatile unsigned char seen = __atomic_load_n(byte, __ATOMIC_RELAXED);
    }
  }
}

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

Result<void> touch_pages(uintptr_t begin, uintptr_t bytes, bool writable) {
  check_guard();  // this thread may never have made a guarded call, or may block other signals since
  if (!guarded([&] { touch(begin, bytes, writable); })) return fail(EFAULT);
  return {};
}

Result<void> check_pages(const void* addr, uint64_t length, bool writable) {
  if (length == 0) return {};
  const auto first = reinterpret_cast<uintptr_t>(addr);
  if (length - 1 > UINTPTR_MAX - first) return fail(EINVAL);
  const uintptr_t last = first + (length - 1);
  const uintptr_t begin = first & ~(page_size() - 1);
  const uintptr_t end = (last | (page_size() - 1)) + 1;
  if (end == 0) return fail(EFAULT);  // no user memory is up there, and the length would overflow
  const PageRange range{begin, end - begin};
  if (!kernel_can_populate()) return touch_pages(range.begin, range.bytes, writable);
  const int error = populate(range, writable);
  if (error == 0) return {};
  if (error == ENOMEM && !has_hole(range)) return fail(ENOMEM);
  // EINVAL: rights are missing, or it is device memory. EFAULT: beyond the end of the file behind it.
  // EHWPOISON: the page is broken. Pinning answers EFAULT to all of them.
  return fail(EFAULT);
}

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
