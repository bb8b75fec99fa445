// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/ordered_copy.h"

#include <array>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/pages.h"

namespace verbena::memory {
namespace {

class OrderedCopy : public testing::Test {
 protected:
  void SetUp() override { install_fault_guard(); }
};

TEST_F(OrderedCopy, CopiesAsMemcpyDoes) {
  std::array<std::byte, 128> from;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t at = 0; at < 16; ++at) {
    for (size_t bytes = 0; bytes <= 70; ++bytes) {
      for (const size_t first : {size_t{0}, bytes / 3, bytes}) {
        alignas(16) std::array<std::byte, 128> to{};
        std::array<std::byte, 128> expected{};
        std::memcpy(expected.data() + at, from.data() + 3, bytes);
        const std::array<ConstBytes, 2> pieces{ConstBytes(from.data() + 3, first),
                                               ConstBytes(from.data() + 3 + first, bytes - first)};
        ASSERT_TRUE(copy_in_order_guarded(to.data() + at, pieces));
        ASSERT_EQ(to, expected) << bytes << " bytes at " << at;
      }
    }
  }
}

TEST_F(OrderedCopy, ScattersOverItsPieces) {
  const std::array<std::byte, 3> from{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 2> first{};
  std::byte second{};
  const std::array<ConstBytes, 2> pieces{first, ConstBytes(&second, 1)};
  EXPECT_TRUE(scatter_guarded(pieces, from.data()));
  EXPECT_EQ(first[0], std::byte{1});
  EXPECT_EQ(first[1], std::byte{2});
  EXPECT_EQ(second, std::byte{3});
}

TEST_F(OrderedCopy, AnswersFalseForATruncatedFile) {
  const UniqueFd file = memory_file(2);
  const Pages pages = Pages::of_file(file.get(), 2, PROT_READ | PROT_WRITE, MAP_SHARED);
  const std::vector<std::byte> data(pages.bytes(), std::byte{1});
  const ConstBytes piece = data;
  ASSERT_TRUE(copy_in_order_guarded(pages.data(), {&piece, 1}));
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(page_size())), 0);
  EXPECT_FALSE(copy_in_order_guarded(pages.data(), {&piece, 1}));
  EXPECT_FALSE(scatter_guarded({&piece, 1}, pages.data()));
}

// A reader that sees the last byte sees them all. The reader maps the memory at other addresses, as another
// process does.
TEST_F(OrderedCopy, TheLastByteIsTheLast) {
  const UniqueFd file = memory_file(32);
  const Pages ours = Pages::of_file(file.get(), 32, PROT_READ | PROT_WRITE, MAP_SHARED);
  const Pages theirs = Pages::of_file(file.get(), 32, PROT_READ, MAP_SHARED);
  for (const size_t bytes : {2, 3, 8, 9, 16, 17, 31, 64, 100, 256, 1000, 4096, 100'003}) {
    for (const size_t at : {0, 1, 4, 8, 60}) {
      std::memset(ours.data(), 0, ours.bytes());
      std::vector<std::byte> data(bytes);
      const ConstBytes piece = data;
      const int rounds = bytes > 1000 ? 20 : 200;
      size_t behind = 0;  // bytes missing when the last one was there
      for (int round = 1; round <= rounds; ++round) {
        std::memset(data.data(), round, bytes);
        std::thread watcher([&] {
          const volatile std::byte* const seen = theirs.data() + at;
          while (seen[bytes - 1] != static_cast<std::byte>(round)) std::this_thread::yield();
          for (size_t i = 0; i < bytes; ++i) behind += seen[i] != static_cast<std::byte>(round) ? 1 : 0;
        });
        ASSERT_TRUE(copy_in_order_guarded(ours.data() + at, {&piece, 1}));
        watcher.join();
      }
      ASSERT_EQ(behind, 0u) << bytes << " bytes at " << at;
    }
  }
}

#if defined(__x86_64__)
// Steps through the copy with the processor's trap flag. A program takes the data as soon as it sees the last
// word.
volatile std::byte* watched = nullptr;
int times_seen = 0;

void take_what_came(int) {
  if (*watched == std::byte{}) return;
  *watched = std::byte{};
  ++times_seen;
}

TEST_F(OrderedCopy, StoresAWordOnce) {
  if (kMaxSmallCopy == 0) GTEST_SKIP() << "the sanitizers have no such copy";
  constexpr unsigned long long kTrapFlag = 0x100;
  check_guard();
  struct sigaction before;
  struct sigaction taking {};
  taking.sa_handler = take_what_came;
  ASSERT_EQ(sigaction(SIGTRAP, &taking, &before), 0);
  for (const size_t bytes : {1, 2, 4, 8}) {
    alignas(8) std::array<std::byte, 8> to{};
    const std::vector<std::byte> data(bytes, std::byte{1});
    watched = to.data() + bytes - 1;
    times_seen = 0;
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrapFlag);
    const bool done = copy_in_order_guarded(to.data(), data);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrapFlag);
    EXPECT_TRUE(done);
    EXPECT_EQ(times_seen, 1) << bytes << " bytes";
  }
  ASSERT_EQ(sigaction(SIGTRAP, &before, nullptr), 0);
}
#endif

// ---- where an ordered copy is worth trying

TEST(GuardHere, HoldsInAThreadThatTakesFaults) {
  bool holds = false;
  std::thread([&] { holds = guard_holds_here() && guard_holds_here(); }).join();
  EXPECT_TRUE(holds);
}

TEST(GuardHere, HoldsNotWhereASignalIsBlocked) {
  for (const int signal : {SIGSEGV, SIGBUS}) {
    bool holds = true;
    std::thread([&] {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, signal);
      pthread_sigmask(SIG_BLOCK, &set, nullptr);
      holds = guard_holds_here();
    }).join();
    EXPECT_FALSE(holds) << signal;
  }
}

TEST(GuardHere, PutsTheHandlersBack) {
  install_fault_guard();
  struct sigaction own {};
  own.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGBUS, &own, &before), 0);
  ASSERT_FALSE(fault_guard_in_place());
  bool holds = false;
  std::thread([&] { holds = guard_holds_here(); }).join();
  EXPECT_TRUE(holds);
  EXPECT_TRUE(fault_guard_in_place());
  ASSERT_EQ(sigaction(SIGBUS, &before, nullptr), 0);
}

}  // namespace
}  // namespace verbena::memory
