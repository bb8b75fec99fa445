// SPDX-License-Identifier: Apache-2.0
// The allocation functions of this preload, in front of the C library's or of another allocator that is
// loaded behind this library. Large blocks come from the shared heap if possible; the others from the next
// allocator.
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <sys/mman.h>

#include "base/interpose.h"
#include "preload/malloc/heap.h"

namespace verbena::heap {
namespace {

// The size from which malloc(3), too, maps a block of its own.
constexpr size_t kLarge = size_t{128} << 10;
// Each block may be a mapping, and a process has at most 65530.
constexpr size_t kMaxBlocks = 16384;

constinit Extent table[kMaxBlocks];
constinit Heap heap(table, kMaxBlocks);

size_t page_size() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

bool is_large(size_t bytes) {
  return __builtin_expect(bytes >= kLarge, 0) && bytes <= PTRDIFF_MAX;
}

// Whether an aligned block is large. Whole pages with page alignment count as large: such a buffer is usually
// meant for a device or a peer.
bool is_large(size_t alignment, size_t bytes) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) return false;
  return is_large(bytes) || (bytes <= PTRDIFF_MAX && alignment >= page_size() && bytes >= alignment);
}

void* allocate_aligned(size_t alignment, size_t bytes) {
  if (!is_large(alignment, bytes)) return nullptr;
  return heap.allocate({.bytes = bytes, .alignment = alignment});
}

// Detects whether the program's allocation calls reach this library. A program may bring its own allocator
// (jemalloc linked in, a sanitizer), whose functions precede ours. If only some of our functions were
// reached, one allocator would free the other's blocks. So each function that takes a block is called once,
// through the program's binding, with a null pointer, which has no effect. The functions of this library
// record such calls.
enum class Arrival : unsigned { kFree = 1, kRealloc = 2, kReallocArray = 4, kUsableSize = 8 };

constexpr unsigned kAllArrivals = 15;

constinit bool looks_for_arrivals = false;
constinit unsigned seen_arrivals = 0;

// Records that this function of ours was called with a null pointer.
void note_arrival(Arrival arrival) {
  if (looks_for_arrivals) [[unlikely]]
    seen_arrivals |= static_cast<unsigned>(arrival);
}

}  // namespace

INTERPOSE(void*, malloc, (size_t bytes)) {
  if (is_large(bytes)) {
    if (void* const block = heap.allocate({.bytes = bytes})) return block;
  }
  return next_malloc(bytes);
}

INTERPOSE(void, free, (void* at)) {
  if (heap.may_hold(at) && heap.release(at)) return;
  if (at == nullptr) note_arrival(Arrival::kFree);
  next_free(at);
}

INTERPOSE(void*, calloc, (size_t count, size_t bytes)) {
  size_t all = 0;
  if (!__builtin_mul_overflow(count, bytes, &all) && is_large(all)) {
    if (void* const block = heap.allocate({.bytes = all, .zeroed = true})) return block;
  }
  return next_calloc(count, bytes);
}

INTERPOSE(size_t, malloc_usable_size, (void* at)) {
  if (heap.may_hold(at)) {
    if (const size_t bytes = heap.usable_size(at)) return bytes;
  }
  if (at == nullptr) note_arrival(Arrival::kUsableSize);
  return next_malloc_usable_size(at);
}

// Defines a function that returns an aligned block. The next allocator's function gets the last arguments.
#define ALIGNED(name, parameters, alignment, ...)               \
  INTERPOSE(void*, name, parameters) {                          \
    void* const block = allocate_aligned(alignment, bytes);     \
    return block != nullptr ? block : next_##name(__VA_ARGS__); \
  }

ALIGNED(memalign, (size_t alignment, size_t bytes), alignment, alignment, bytes)
ALIGNED(aligned_alloc, (size_t alignment, size_t bytes), alignment, alignment, bytes)
ALIGNED(valloc, (size_t bytes), page_size(), bytes)
ALIGNED(pvalloc, (size_t bytes), page_size(), bytes)

INTERPOSE(int, posix_memalign, (void** result, size_t alignment, size_t bytes)) {
  if (alignment % sizeof(void*) == 0) {
    if (void* const block = allocate_aligned(alignment, bytes)) {
      *result = block;
      return 0;
    }
  }
  return next_posix_memalign(result, alignment, bytes);
}

namespace {

// Moves a growing block to a place with room for growth, so that later growth need not move it.
void* move(void* at, size_t had, size_t bytes) {
  void* block = is_large(bytes) ? heap.allocate({.bytes = bytes, .grows = true}) : nullptr;
  if (block == nullptr) block = next_malloc(bytes);
  if (block != nullptr) std::memcpy(block, at, had < bytes ? had : bytes);
  return block;
}

// Moves another allocator's block, which becomes large, into the heap. nullptr: it stays where it is.
void* move_in(void* at, size_t bytes) {
  const size_t had = next_malloc_usable_size(at);
  if (had >= kLarge) return nullptr;
  void* const block = heap.allocate({.bytes = bytes, .grows = true});
  if (block == nullptr) return nullptr;
  std::memcpy(block, at, had < bytes ? had : bytes);
  next_free(at);
  return block;
}

// Whether the heap handles the block; then *result is realloc()'s return value.
bool reallocated(void* at, size_t bytes, void** result) {
  if (!heap.may_hold(at)) {
    if (at == nullptr || !is_large(bytes)) return false;
    *result = move_in(at, bytes);
    return *result != nullptr;
  }
  const size_t had = heap.usable_size(at);
  if (had == 0) return false;
  *result = nullptr;
  if (bytes == 0) {
    heap.release(at);
  } else if (heap.resize(at, bytes)) {
    *result = at;
  } else {
    *result = move(at, had, bytes);
    if (*result != nullptr) heap.release(at);
  }
  return true;
}

}  // namespace

INTERPOSE(void*, realloc, (void* at, size_t bytes)) {
  void* result = nullptr;
  if (reallocated(at, bytes, &result)) return result;
  if (at == nullptr) {
    note_arrival(Arrival::kRealloc);
    if (is_large(bytes)) result = heap.allocate({.bytes = bytes, .grows = true});
    if (result != nullptr) return result;
  }
  return next_realloc(at, bytes);
}

INTERPOSE(void*, reallocarray, (void* at, size_t count, size_t bytes)) {
  size_t all = 0;
  void* result = nullptr;
  if (at == nullptr) note_arrival(Arrival::kReallocArray);
  if (!__builtin_mul_overflow(count, bytes, &all) && reallocated(at, all, &result)) return result;
  return next_reallocarray(at, count, bytes);
}

// C23 functions. A C library that has them may not call our free() from them.
extern "C" [[gnu::visibility("default")]] void shown_free_sized(void* at, size_t) __asm__("free_sized");
void shown_free_sized(void* at, size_t) {
  shown_free(at);
}
extern "C" [[gnu::visibility("default")]] void shown_free_aligned_sized(void* at, size_t,
                                                                        size_t) __asm__("free_aligned_sized");
void shown_free_aligned_sized(void* at, size_t, size_t) {
  shown_free(at);
}

// Private memory forgets its contents with this advice, but a file would keep them. MADV_FREE, which lets the
// kernel choose the time, works only for private memory, so it becomes MADV_DONTNEED.
INTERPOSE(int, madvise, (void* at, size_t bytes, int advice)) {
  constexpr int kDontNeedLocked = 24;
  const bool forgets = advice == MADV_DONTNEED || advice == MADV_FREE || advice == kDontNeedLocked;
  if (!forgets || !heap.may_hold(at)) return next_madvise(at, bytes, advice);
  const int answer = next_madvise(at, bytes, advice == MADV_FREE ? MADV_DONTNEED : advice);
  if (answer == 0) heap.make_zeros(at, bytes);
  return answer;
}

// Volatile, so that the compiler does not optimize these calls away: it knows what the functions do with a
// null pointer.
static void (*volatile call_free)(void*) = ::free;
static void* (*volatile call_realloc)(void*, size_t) = ::realloc;
static void* (*volatile call_realloc_array)(void*, size_t, size_t) = ::reallocarray;
static size_t (*volatile call_usable_size)(void*) = ::malloc_usable_size;

// Returns whether the program's free(), realloc(), reallocarray() and malloc_usable_size() are this
// library's; if not, leaks two small blocks. Called once, before a second thread exists.
static bool all_arrive_here() {
  looks_for_arrivals = true;
  call_free(nullptr);
  call_usable_size(nullptr);
  void* const one = call_realloc(nullptr, 1);
  void* const other = call_realloc_array(nullptr, 1, 1);
  looks_for_arrivals = false;
  if (seen_arrivals != kAllArrivals) return false;  // leaks two small blocks: their allocator is not known
  call_free(one);
  call_free(other);
  return true;
}

// Registers the fork handlers before any other library does. Then the handlers of others run inside ours, and
// see memory in its final state.
[[gnu::constructor]] static void begin() {
  if (!all_arrive_here()) return;
  const int watched = ::pthread_atfork([] { heap.before_fork(); }, [] { heap.after_fork_in_parent(); },
                                       [] { heap.after_fork_in_child(); });
  if (watched == 0) heap.enable();
}

}  // namespace verbena::heap
