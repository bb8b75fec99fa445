// SPDX-License-Identifier: Apache-2.0
// After fork(2) a child has its own copy of its parent's blocks, as of private memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "preload/malloc/preload_support.h"

namespace verbena::backing_testing {
namespace {

// One process waits until the other has arrived.
class Signpost {
 public:
  Signpost() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) std::abort();
  }
  ~Signpost() {
    for (const int end : ends_) ::close(end);
  }
  Signpost(const Signpost&) = delete;
  Signpost& operator=(const Signpost&) = delete;
  void pass() const {
    if (::write(ends_[1], "x", 1) != 1) std::abort();
  }
  void wait() const {
    char byte = 0;
    if (::read(ends_[0], &byte, 1) != 1) std::abort();
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(Fork, AChildHasWhatWasThere) {
  const Block block = allocate(5 * kMebibyte);
  const Block other(::memalign(kPage, kPage));
  fill(block.get(), 5 * kMebibyte, 1);
  fill(other.get(), kPage, 2);
  EXPECT_TRUE(in_child([&] { return are(block.get(), 5 * kMebibyte, 1) && are(other.get(), kPage, 2); }));
}

TEST(Fork, WhatAChildWritesIsItsOwn) {
  const Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  EXPECT_TRUE(in_child([&] {
    fill(block.get(), kMebibyte, 2);
    return are(block.get(), kMebibyte, 2);
  }));
  EXPECT_TRUE(are(block.get(), kMebibyte, 1));
  EXPECT_TRUE(is_shared(block.get()));
}

TEST(Fork, WhatTheParentWritesLaterAChildDoesNotSee) {
  const Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  const Signpost written;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    written.wait();
    ::_exit(are(block.get(), kMebibyte, 1) ? 0 : 1);
  }
  fill(block.get(), kMebibyte, 2);
  written.pass();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(are(block.get(), kMebibyte, 2));
}

TEST(Fork, AChildFreesAndResizesItsOwn) {
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(std::malloc(kMebibyte));
    fill(blocks.back(), kMebibyte, 1);
  }
  EXPECT_TRUE(in_child([&] {
    std::free(blocks[0]);
    blocks[1] = std::realloc(blocks[1], 4 * kMebibyte);
    fill(blocks[1], 4 * kMebibyte, 3);
    blocks[2] = std::realloc(blocks[2], 2 * kPage);
    const bool holds = are(blocks[2], 2 * kPage, 1) && are(blocks[3], kMebibyte, 1);
    return ::madvise(blocks[3], kMebibyte, MADV_DONTNEED) == 0 && are(blocks[3], kMebibyte, 0) && holds;
  }));
  for (void* at : blocks) {
    EXPECT_TRUE(are(at, kMebibyte, 1));
    std::free(at);
  }
}

TEST(Fork, WhatAChildAllocatesIsSharedAndNotItsParents) {
  const Block block = allocate(kMebibyte);
  const std::string parents = line_of(block.get());
  EXPECT_TRUE(in_child([&] {
    if (is_shared(block.get()) || file_of_blocks()) return false;
    const Block own = allocate(kMebibyte);
    fill(own.get(), kMebibyte, 4);
    struct stat made {};
    return is_shared(own.get()) && ::fstat(*file_of_blocks(), &made) == 0 &&
           parents.find(" " + std::to_string(made.st_ino) + " ") == std::string::npos;
  }));
}

TEST(Fork, WhereAChildHasFreedItsCopyTheNextBlockIsShared) {
  void* const block = std::malloc(kMebibyte);
  EXPECT_TRUE(in_child([block] {
    const Block own = allocate(kMebibyte);
    std::free(block);
    return is_shared(own.get()) && is_shared(allocate(kMebibyte).get());
  }));
  std::free(block);
}

TEST(Fork, AChildsChildHasItsOwnToo) {
  const Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  EXPECT_TRUE(in_child([&] {
    const Block second = allocate(kMebibyte);
    fill(second.get(), kMebibyte, 2);
    const bool holds = in_child([&] {
      const bool both = are(block.get(), kMebibyte, 1) && are(second.get(), kMebibyte, 2);
      fill(block.get(), kMebibyte, 8);
      fill(second.get(), kMebibyte, 8);
      return both;
    });
    return holds && are(block.get(), kMebibyte, 1) && are(second.get(), kMebibyte, 2);
  }));
}

// A freed block that is kept for reuse is shared with the parent: a child that gets it must not write into
// it.
TEST(Fork, WhatIsKeptIsNotHandedOn) {
  fill(allocate(kMebibyte).get(), kMebibyte, 7);
  EXPECT_TRUE(in_child([] {
    const Block own = allocate(kMebibyte);
    fill(own.get(), kMebibyte, 9);
    return is_shared(own.get());
  }));
  const Block next = allocate(kMebibyte);
  EXPECT_TRUE(are(next.get(), kMebibyte, 0));
}

TEST(Fork, RightsAreKept) {
  const Block block = allocate(kMebibyte);
  auto* const at = static_cast<std::byte*>(block.get());
  fill(at, kMebibyte, 1);
  ASSERT_EQ(::mprotect(at + kPage, kPage, PROT_NONE), 0);
  ASSERT_EQ(::mprotect(at + 2 * kPage, kPage, PROT_READ | PROT_EXEC), 0);
  EXPECT_TRUE(in_child([&] {
    const bool rights = rights_of(at) == "rw-p" && rights_of(at + kPage) == "---p" &&
                        rights_of(at + 2 * kPage) == "r-xp" && rights_of(at + 3 * kPage) == "rw-p";
    return rights && ::mprotect(at + kPage, kPage, PROT_READ) == 0 && are(at, kMebibyte, 1);
  }));
  ASSERT_EQ(::mprotect(at, kMebibyte, PROT_READ | PROT_WRITE), 0);
}

TEST(Fork, AFileThatTheProgramHasPutThereStaysShared) {
  const Block block = allocate(kMebibyte);
  auto* const at = static_cast<std::byte*>(block.get());
  fill(at, kMebibyte, 1);
  ASSERT_NE(::mmap(at + kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS, -1, 0),
            MAP_FAILED);
  EXPECT_TRUE(in_child([&] {
    fill(at, 3 * kPage, 2);
    return true;
  }));
  EXPECT_TRUE(are(at, kPage, 1));
  EXPECT_TRUE(are(at + kPage, kPage, 2));
  EXPECT_TRUE(are(at + 2 * kPage, kPage, 1));
}

TEST(Fork, MemoryThatHasNotBeenTouchedIsNotCopied) {
  constexpr size_t kSparse = size_t{64} << 30;
  const Block block = allocate(kSparse);
  ASSERT_TRUE(is_shared(block.get()));
  auto* const at = static_cast<std::byte*>(block.get());
  fill(at + kSparse / 2, kPage, 1);
  const uint64_t before = bytes_of_file();
  EXPECT_TRUE(in_child([&] { return are(at + kSparse / 2, kPage, 1) && are(at, kPage, 0); }));
  EXPECT_LE(bytes_of_file(), before);
}

TEST(Fork, GoesOnWhileOtherThreadsAllocate) {
  std::atomic<bool> stop{false};
  std::atomic<int> broken{0};
  const Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) {
        const Block own = allocate((128 << 10) + static_cast<size_t>(i) * kMebibyte);
        const auto mark = static_cast<uint8_t>(i + 10);
        fill(own.get(), 64 << 10, mark);
        if (!are(own.get(), 64 << 10, mark)) ++broken;
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(in_child([&] {
      const Block own = allocate(3 * kMebibyte);
      fill(own.get(), 3 * kMebibyte, 5);
      return are(block.get(), kMebibyte, 1) && are(own.get(), 3 * kMebibyte, 5);
    }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
}

// The program's fork handlers run inside ours. They see the memory in its final state, and may allocate and
// free.
TEST(Fork, HandlersOfTheProgramMayAllocate) {
  static void* at;  // nullptr after the test
  static bool child_saw_its_own;
  at = std::malloc(kMebibyte);
  fill(at, kMebibyte, 1);
  const auto exchange = [] {
    if (at == nullptr) return;
    std::free(at);
    at = std::malloc(2 * kMebibyte);
    fill(at, 2 * kMebibyte, 1);
  };
  const auto look = [] {
    if (at == nullptr) return;
    child_saw_its_own = are(at, 2 * kMebibyte, 1) && !is_shared(at);
    std::free(at);
    at = std::malloc(kMebibyte);
  };
  ASSERT_EQ(::pthread_atfork(exchange, exchange, look), 0);
  EXPECT_TRUE(in_child([] { return child_saw_its_own; }));
  EXPECT_TRUE(are(at, 2 * kMebibyte, 1));
  std::free(std::exchange(at, nullptr));
}

// A coroutine that forks: both processes continue in the same stack frames.
TEST(Fork, AStackMayLieInABlock) {
  constexpr size_t kBytes = kMebibyte;
  static ucontext_t outside;
  static ucontext_t inside;
  static bool holds;
  const Block stack(::memalign(kPage, kBytes));
  ASSERT_TRUE(is_shared(stack.get()));
  ASSERT_EQ(::mprotect(stack.get(), kPage, PROT_NONE), 0);  // as stack guards are
  ASSERT_EQ(::getcontext(&inside), 0);
  inside.uc_stack.ss_sp = stack.get();
  inside.uc_stack.ss_size = kBytes;
  inside.uc_link = &outside;
  ::makecontext(
      &inside,
      [] {
        std::array<int, 1000> numbers{};
        holds = true;
        for (int round = 0; round < 20; ++round) {
          std::ranges::fill(numbers, round);
          holds &= in_child([&] {
            for (int& number : numbers) number *= 2;
            return std::ranges::all_of(numbers, [&](int number) { return number == 2 * round; });
          });
          holds &= std::ranges::all_of(numbers, [&](int number) { return number == round; });
        }
      },
      0);
  ASSERT_EQ(::swapcontext(&outside, &inside), 0);
  EXPECT_TRUE(holds);
  EXPECT_EQ(rights_of(stack.get()), "---p");
  ASSERT_EQ(::mprotect(stack.get(), kPage, PROT_READ | PROT_WRITE), 0);
}

TEST(Fork, AChildThatCannotHaveACopyIsEnded) {
  const Block block = allocate(64 * kMebibyte);
  fill(block.get(), 64 * kMebibyte, 1);
  EXPECT_TRUE(in_child([] {
    const Block own = allocate(64 * kMebibyte);
    fill(own.get(), 64 * kMebibyte, 2);
    const rlimit none{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &none);
    ::close(STDERR_FILENO);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
           are(own.get(), 64 * kMebibyte, 2);
  }));
}

TEST(Fork, WithoutDescriptorsToBeHadAChildHasItsCopy) {
  const Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  EXPECT_TRUE(in_child([] {
    const Block own = allocate(kMebibyte);
    fill(own.get(), kMebibyte, 2);
    rlimit files{};
    if (!is_shared(own.get()) || ::getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
    files.rlim_cur = 0;
    if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return false;
    return in_child([&] {
             const bool holds = are(own.get(), kMebibyte, 2);
             fill(own.get(), kMebibyte, 3);
             return holds;
           }) &&
           are(own.get(), kMebibyte, 2);
  }));
}

TEST(Fork, WithoutTheDescriptorAChildHasItsCopyAllTheSame) {
  EXPECT_TRUE(in_child([] {
    const Block block = allocate(kMebibyte);
    auto* const at = static_cast<std::byte*>(block.get());
    fill(at, kMebibyte / 2, 1);
    if (::mprotect(at, kPage, PROT_NONE) != 0) return false;
    ::close(*file_of_blocks());
    return in_child([&] {
             const bool rights =
                 rights_of(at) == "---p" && ::mprotect(at, kPage, PROT_READ | PROT_WRITE) == 0;
             const bool holds = are(at, kMebibyte / 2, 1) && are(at + kMebibyte / 2, kMebibyte / 2, 0);
             fill(at, kMebibyte, 7);
             return rights && holds && is_shared(allocate(kMebibyte).get());
           }) &&
           are(at + kPage, kMebibyte / 2 - kPage, 1);
  }));
}

// A child of _Fork() shares these blocks, and must not take them from its parent.
TEST(Fork, AChildMadeWithoutItTakesNothingAway) {
  std::array<void*, 3> blocks{};
  for (void*& at : blocks) {
    at = std::malloc(kMebibyte);
    fill(at, kMebibyte, 1);
  }
  const pid_t child = ::_Fork();
  if (child == 0) {
    ::alarm(60);
    std::free(blocks[0]);
    void* const smaller = std::realloc(blocks[1], 2 * kPage);
    const bool advised = ::madvise(blocks[2], kMebibyte, MADV_DONTNEED) == 0;
    ::_exit(smaller == blocks[1] && advised && !is_shared(allocate(kMebibyte).get()) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (void* at : blocks) {
    EXPECT_TRUE(are(at, kMebibyte, 1));
    std::free(at);
  }
}

TEST(Spawn, ProgramsAreStartedAsEver) {
  const Block block = allocate(kMebibyte);
  fill(block.get(), kMebibyte, 1);
  EXPECT_EQ(std::system("true"), 0);
  pid_t child = -1;
  std::array<char*, 2> arguments{const_cast<char*>("true"), nullptr};
  ASSERT_EQ(::posix_spawnp(&child, "true", nullptr, nullptr, arguments.data(), environ), 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(are(block.get(), kMebibyte, 1));
  EXPECT_TRUE(is_shared(block.get()));
}

}  // namespace
}  // namespace verbena::backing_testing
