// SPDX-License-Identifier: Apache-2.0
// malloc(3) and related functions in a program that runs with the preload.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/seed.h"
#include "preload/malloc/preload_support.h"

namespace verbena::backing_testing {
namespace {

TEST(Allocation, LargeBlocksAreShared) {
  EXPECT_TRUE(is_shared(allocate(128 << 10).get()));
  EXPECT_TRUE(is_shared(Block(std::calloc(1024, 1024)).get()));
  EXPECT_TRUE(is_shared(Block(std::realloc(nullptr, kMebibyte)).get()));
  EXPECT_TRUE(is_shared(Block(::reallocarray(nullptr, 1024, 1024)).get()));
  EXPECT_TRUE(is_shared(std::make_unique<char[]>(kMebibyte).get()));
}

// perftest's buffers: memalign() of two pages.
TEST(Allocation, WholePagesAreShared) {
  void* at = nullptr;
  ASSERT_EQ(::posix_memalign(&at, kPage, kPage), 0);
  EXPECT_TRUE(is_shared(Block(at).get()));
  EXPECT_TRUE(is_shared(Block(::memalign(kPage, 2 * kPage)).get()));
  EXPECT_TRUE(is_shared(Block(std::aligned_alloc(kPage, kPage)).get()));
  EXPECT_TRUE(is_shared(Block(::valloc(kPage)).get()));
  EXPECT_TRUE(is_shared(Block(::pvalloc(kPage)).get()));
}

TEST(Allocation, SmallBlocksAreWhereTheyWere) {
  EXPECT_FALSE(is_shared(allocate(1000).get()));
  EXPECT_FALSE(is_shared(allocate((128 << 10) - 1).get()));
  EXPECT_FALSE(is_shared(Block(std::aligned_alloc(64, 64 << 10)).get()));
  EXPECT_FALSE(is_shared(Block(::memalign(kPage, 100)).get()));
  EXPECT_FALSE(is_shared(Block(::memalign(2 * kMebibyte, kPage)).get()));
}

TEST(Allocation, AllOfABlockCanBeUsed) {
  for (const size_t bytes : {size_t{128} << 10, size_t{200'001}, 7 * kMebibyte + 1}) {
    const Block block = allocate(bytes);
    const size_t usable = ::malloc_usable_size(block.get());
    EXPECT_GE(usable, bytes);
    fill(block.get(), usable, 5);
    EXPECT_TRUE(are(block.get(), usable, 5));
  }
}

TEST(Allocation, BlocksAreAligned) {
  for (size_t alignment = 16; alignment <= size_t{1} << 30; alignment *= 2) {
    const Block first(std::aligned_alloc(alignment, 256 << 10));
    const Block second(std::aligned_alloc(alignment, 256 << 10));
    ASSERT_NE(first, nullptr);
    ASSERT_NE(second, nullptr);
    EXPECT_NE(first, second);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % alignment, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second.get()) % alignment, 0u);
    EXPECT_TRUE(is_shared(first.get()));
  }
}

TEST(Allocation, WrongWishesAreRefusedAsTheyWere) {
  void* at = nullptr;
  EXPECT_EQ(::posix_memalign(&at, 3, kMebibyte), EINVAL);
  EXPECT_EQ(::posix_memalign(&at, 2, kMebibyte), EINVAL);
  volatile size_t huge = SIZE_MAX / 2 + 1;
  errno = 0;
  EXPECT_EQ(std::malloc(huge), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(std::calloc(huge, 2), nullptr);
  const Block block = allocate(kMebibyte);
  EXPECT_EQ(std::realloc(hidden(block.get()), huge), nullptr);
  EXPECT_EQ(::reallocarray(hidden(block.get()), huge, 2), nullptr);
  char* volatile characters = nullptr;
  EXPECT_THROW(characters = new char[huge - 1], std::bad_alloc);
  delete[] characters;
}

TEST(Allocation, ClearedBlocksAreZeros) {
  const void* before = nullptr;
  {
    const Block dirty = allocate(kMebibyte);
    fill(dirty.get(), kMebibyte, 1);
    before = dirty.get();
  }
  const Block clear(std::calloc(1, kMebibyte));
  EXPECT_EQ(clear.get(), before);  // the block was in use before
  EXPECT_TRUE(are(clear.get(), kMebibyte, 0));
  const Block fresh(std::calloc(1, 3 * kMebibyte));
  EXPECT_TRUE(are(fresh.get(), 3 * kMebibyte, 0));
}

// A program puts a guard page behind a buffer, and frees the buffer without removing the guard.
TEST(Allocation, WhatNobodyMightTouchTheNextMay) {
  {
    const Block guarded = allocate(kMebibyte);
    ASSERT_EQ(::mprotect(static_cast<std::byte*>(guarded.get()) + kPage, kPage, PROT_NONE), 0);
  }
  const Block next = allocate(kMebibyte);
  ASSERT_EQ(rights_of(static_cast<std::byte*>(next.get()) + kPage), "rw-s");
  fill(next.get(), kMebibyte, 1);
}

TEST(Allocation, ErrnoIsKept) {
  errno = 77;
  for (const size_t bytes : {kMebibyte, 100 * kMebibyte}) {
    void* at = std::malloc(bytes);
    at = std::realloc(at, 2 * bytes);
    std::free(at);
  }
  EXPECT_EQ(errno, 77);
  const Block block = allocate(kMebibyte);
  errno = 77;
  EXPECT_TRUE(in_child([] { return errno == 77; }));
}

// ---- realloc

TEST(Reallocation, KeepsWhatIsInTheBlock) {
  size_t had = 1000;
  void* at = std::malloc(had);
  fill(at, had, 9);
  for (const size_t bytes : {size_t{100'000}, size_t{130'000}, size_t{140'000}, 5 * kMebibyte, kMebibyte,
                             80 * kMebibyte, 200 * kPage, size_t{10}}) {
    at = std::realloc(at, bytes);
    ASSERT_NE(at, nullptr);
    ASSERT_GE(::malloc_usable_size(at), bytes);
    ASSERT_TRUE(are(at, std::min(had, bytes), 9)) << bytes;
    EXPECT_EQ(is_shared(at), bytes >= 128 << 10 || bytes < 1000) << bytes;
    fill(at, bytes, 9);
    had = bytes;
  }
  EXPECT_EQ(std::realloc(at, 0), nullptr);
}

TEST(Reallocation, MovesABlockThatGrowsOnlyNowAndThen) {
  EXPECT_TRUE(in_child([] {  // no freed blocks lie nearby
    std::vector<Block> in_the_way;
    void* at = nullptr;
    for (size_t bytes = 128 << 10; bytes < 32 * kMebibyte; bytes += 64 << 10) {
      void* const next = std::realloc(hidden(at), bytes);
      if (next != at) in_the_way.emplace_back(::memalign(kPage, kPage));
      at = next;
    }
    std::free(at);
    return in_the_way.size() >= 2 && in_the_way.size() <= 10;
  }));
}

TEST(Reallocation, ASmallerBlockGivesMemoryBack) {
  void* at = std::malloc(32 * kMebibyte);
  fill(at, 32 * kMebibyte, 1);
  const uint64_t before = bytes_of_file();
  at = std::realloc(at, kMebibyte);
  EXPECT_EQ(bytes_of_file(), before - 31 * kMebibyte);
  EXPECT_TRUE(are(at, kMebibyte, 1));
  std::free(at);
}

// ---- free

TEST(Freeing, MuchMemoryIsGivenBackAtOnce) {
  allocate(kMebibyte);
  const uint64_t before = bytes_of_file();
  {
    const Block block = allocate(64 * kMebibyte);
    fill(block.get(), 64 * kMebibyte, 1);
    EXPECT_EQ(bytes_of_file(), before + 64 * kMebibyte);
  }
  EXPECT_EQ(bytes_of_file(), before);
}

TEST(Freeing, WhatIsKeptIsBounded) {
  std::vector<Block> blocks;
  for (int i = 0; i < 10; ++i) {
    blocks.push_back(allocate(20 * kMebibyte));
    fill(blocks.back().get(), 20 * kMebibyte, 1);
  }
  EXPECT_GE(bytes_of_file(), 200 * kMebibyte);
  blocks.clear();
  EXPECT_LE(bytes_of_file(), 64 * kMebibyte);
}

TEST(Freeing, AFreedBlockIsTheNextOnesWithItsMemory) {
  Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  const uint64_t before = bytes_of_file();
  const void* const at = block.get();
  block.reset();
  EXPECT_EQ(bytes_of_file(), before);
  EXPECT_EQ(allocate(kMebibyte).get(), at);
}

TEST(Freeing, MoreBlocksThanThereArePlacesFor) {
  std::vector<Block> blocks(20'000);
  for (Block& block : blocks) {
    block.reset(::memalign(kPage, kPage));
    ASSERT_NE(block, nullptr);
    fill(block.get(), kPage, 3);
  }
  EXPECT_TRUE(is_shared(blocks.front().get()));
  EXPECT_FALSE(is_shared(blocks.back().get()));
  for (const Block& block : blocks) EXPECT_TRUE(are(block.get(), kPage, 3));
  blocks.erase(blocks.begin(), blocks.begin() + 10'000);
  EXPECT_TRUE(is_shared(allocate(kMebibyte).get()));
  EXPECT_LE(bytes_of_file(), 6384 * kPage + 2 * kMebibyte);  // most of it was given back
}

// ---- the program's own calls on its memory

TEST(Advice, ForgottenMemoryIsZeros) {
  const Block block = allocate(kMebibyte);
  for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
    fill(block.get(), kMebibyte, 1);
    auto* const at = static_cast<std::byte*>(block.get());
    ASSERT_EQ(::madvise(at + kPage, 3 * kPage, advice), 0);
    EXPECT_TRUE(are(at, kPage, 1));
    EXPECT_TRUE(are(at + kPage, 3 * kPage, 0));
    EXPECT_TRUE(are(at + 4 * kPage, kMebibyte - 4 * kPage, 1));
  }
}

TEST(Advice, AFileThatTheProgramHasPutThereIsLeftAsItIs) {
  const Block block = allocate(kMebibyte);
  const int file = ::memfd_create("the program's", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(kMebibyte)), 0);
  ASSERT_NE(::mmap(block.get(), kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), MAP_FAILED);
  fill(block.get(), kPage, 7);
  ASSERT_EQ(::madvise(block.get(), 2 * kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(are(block.get(), kPage, 7));
  ::close(file);
}

TEST(Mapping, AnotherInTheWayIsGoneAround) {
  EXPECT_TRUE(in_child([] {  // no freed blocks lie nearby
    const Block block = allocate(kMebibyte);
    auto* const behind = static_cast<std::byte*>(block.get()) + kMebibyte;
    std::vector<void*> mapped;
    std::vector<Block> blocks;
    for (size_t i = 0; i < 10; ++i) {
      void* const at = ::mmap(behind + i * 3 * kMebibyte, kMebibyte, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (at == MAP_FAILED) continue;
      fill(at, kMebibyte, 4);
      mapped.push_back(at);
      blocks.push_back(allocate(2 * kMebibyte + 5));
      fill(blocks.back().get(), 2 * kMebibyte + 5, 6);
    }
    const bool mappings = std::ranges::all_of(mapped, [](void* at) { return are(at, kMebibyte, 4); });
    return !mapped.empty() && mappings && is_shared(allocate(5 * kMebibyte).get()) &&
           std::ranges::all_of(blocks, [](const Block& at) { return are(at.get(), 2 * kMebibyte + 5, 6); });
  }));
}

// ---- threads

TEST(Threads, EachHasItsOwnBlocksAndFreesOthers) {
  constexpr int kThreads = 8;
  const uint64_t seed = test::seed();
  std::mutex mutex;
  std::vector<std::pair<Block, size_t>> common;
  std::atomic<int> broken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(i));
      for (int step = 0; step < 300; ++step) {
        const size_t bytes = (size_t{1} << (10 + random() % 12)) + random() % 5000;
        void* at = random() % 4 == 0 ? std::calloc(1, bytes) : std::malloc(bytes);
        const auto mark = static_cast<uint8_t>(bytes);
        fill(at, bytes, mark);
        size_t has = bytes;
        if (random() % 3 == 0) {
          const size_t next = bytes / 2 + random() % bytes;
          at = std::realloc(at, next);
          has = std::min(bytes, next);
        }
        if (has > 0 && !are(at, has, mark)) ++broken;
        const std::lock_guard guard(mutex);
        common.emplace_back(at, has);
        fill(at, has, static_cast<uint8_t>(has));
        if (common.size() < 40) continue;
        std::swap(common[random() % common.size()], common.back());
        if (!are(common.back().first.get(), common.back().second, static_cast<uint8_t>(common.back().second)))
          ++broken;
        common.pop_back();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
}

// malloc(3) is no cancellation point, although system calls in it would be.
TEST(Threads, AreNotCancelledInHere) {
  std::atomic<bool> cancelled{false};
  std::atomic<bool> came_through{false};
  struct Sides {
    std::atomic<bool>& cancelled;
    std::atomic<bool>& came_through;
  } sides{cancelled, came_through};
  pthread_t thread{};
  ASSERT_EQ(::pthread_create(
                &thread, nullptr,
                [](void* given) -> void* {
                  auto& [was_cancelled, came] = *static_cast<Sides*>(given);
                  while (!was_cancelled) std::this_thread::yield();
                  for (int i = 0; i < 5; ++i)
                    std::free(std::realloc(std::malloc(100 * kMebibyte), kMebibyte));
                  came = true;
                  ::pthread_testcancel();
                  return given;
                },
                &sides),
            0);
  ASSERT_EQ(::pthread_cancel(thread), 0);
  cancelled = true;
  void* result = nullptr;
  ASSERT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(came_through);
}

}  // namespace
}  // namespace verbena::backing_testing
