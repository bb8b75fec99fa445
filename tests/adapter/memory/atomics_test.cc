// SPDX-License-Identifier: Apache-2.0
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/memory/guarded.h"
#include "adapter/memory/pages.h"

namespace verbena::memory {
namespace {

class Atomics : public testing::Test {
 protected:
  void SetUp() override { install_fault_guard(); }

  alignas(8) uint64_t word_ = 40;
  std::byte* at_ = reinterpret_cast<std::byte*>(&word_);
};

TEST_F(Atomics, FetchAddAddsAndAnswersTheOriginal) {
  EXPECT_EQ(fetch_add_guarded(at_, 2), 40u);
  EXPECT_EQ(word_, 42u);
}

TEST_F(Atomics, FetchAddWrapsAround) {
  EXPECT_EQ(fetch_add_guarded(at_, UINT64_MAX), 40u);
  EXPECT_EQ(word_, 39u);
}

TEST_F(Atomics, CompareSwapSwapsOnEqual) {
  EXPECT_EQ(compare_swap_guarded(at_, 40, 7), 40u);
  EXPECT_EQ(word_, 7u);
}

TEST_F(Atomics, CompareSwapOnlyAnswersOnUnequal) {
  EXPECT_EQ(compare_swap_guarded(at_, 41, 7), 40u);
  EXPECT_EQ(word_, 40u);
}

TEST_F(Atomics, FaultsAnswerNothingAndChangeNothing) {
  const Pages missing = Pages::anonymous(1, PROT_NONE);
  const Pages read_only = Pages::anonymous(1, PROT_READ);
  EXPECT_EQ(fetch_add_guarded(missing.data(), 1), std::nullopt);
  EXPECT_EQ(compare_swap_guarded(missing.data(), 0, 1), std::nullopt);
  EXPECT_EQ(fetch_add_guarded(read_only.data(), 1), std::nullopt);
  EXPECT_EQ(compare_swap_guarded(read_only.data(), 0, 1), std::nullopt);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(read_only.data()), 0u);
}

TEST_F(Atomics, LoseNothingAgainstTheApplicationsOwnAtomics) {
  constexpr uint64_t kEach = 20'000;
  word_ = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (uint64_t n = 0; n < kEach; ++n) fetch_add_guarded(at_, 1);
    });
    threads.emplace_back([&] {
      for (uint64_t n = 0; n < kEach; ++n) __atomic_fetch_add(&word_, 1, __ATOMIC_RELAXED);
    });
    threads.emplace_back([&] {
      for (uint64_t n = 0; n < kEach; ++n) {
        uint64_t seen = 0;
        for (uint64_t before; (before = *compare_swap_guarded(at_, seen, seen + 1)) != seen;) seen = before;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(word_, 6 * kEach);
}

}  // namespace
}  // namespace verbena::memory
