// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/sealed_file.h"

namespace verbena::test {

// While the kernel gathers pages into a large one, each access to them waits. Any process that can read the
// file may ask for it.
class CollapsedFile : public ::testing::Test {
 protected:
  static constexpr size_t kLarge = 2 << 20;
  static constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1

  // Returns 0 or an errno value.
  int collapse(int file) const {
    const auto begin = (reinterpret_cast<uintptr_t>(space_) + kLarge - 1) & ~(kLarge - 1);
    auto* const place = reinterpret_cast<void*>(begin);
    EXPECT_EQ(::mmap(place, kLarge, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0), place);
    return ::madvise(place, kLarge, kCollapse) == 0 ? 0 : errno;
  }
  void SetUp() override {
    ASSERT_NE(space_, MAP_FAILED);
    const auto plain = make_memory_file("test", 4096);
    ASSERT_TRUE(plain);
    if (collapse(plain->get()) != 0) GTEST_SKIP() << "this kernel makes no large pages";
  }
  void TearDown() override { ::munmap(space_, 2 * kLarge); }

 private:
  void* const space_ = ::mmap(nullptr, 2 * kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

}  // namespace verbena::test
