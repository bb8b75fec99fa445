// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/queues/mapped_array.h"
#include "base/forked_children.h"
#include "base/seed.h"

namespace verbena::queues {
namespace {

size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

bool is_zero(const MappedArray& array) {
  return std::all_of(array.data(), array.data() + array.size(),
                     [](std::byte b) { return b == std::byte{0}; });
}

MappedArray array_of(size_t bytes) {
  auto made = MappedArray::create(bytes);
  EXPECT_TRUE(made);
  return std::move(*made);
}

TEST(RingPool, GivesZeroedMemoryAlsoWhenItWasUsedBefore) {
  for (const size_t bytes : {1ul, 256ul, 4096ul, 16'384ul, 16'385ul, 65'536ul, 262'144ul, 262'145ul}) {
    for (int round = 0; round < 3; ++round) {
      MappedArray array = array_of(bytes);
      ASSERT_EQ(array.size(), bytes);
      EXPECT_TRUE(is_zero(array)) << bytes;
      std::memset(array.data(), 0xa5, bytes);
    }
  }
}

TEST(RingPool, AlignsBlocksToTheirSizeUpToAPage) {
  std::vector<MappedArray> arrays;
  for (const size_t bytes : {1ul, 100ul, 257ul, 1000ul, 4096ul, 5000ul, 100'000ul}) {
    for (int i = 0; i < 20; ++i) {
      arrays.push_back(array_of(bytes));
      const size_t alignment = std::clamp<size_t>(std::bit_ceil(bytes), 256, 4096);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(arrays.back().data()) % alignment, 0u) << bytes;
    }
  }
}

TEST(RingPool, KeepsBlocksApart) {
  std::vector<MappedArray> arrays;
  for (size_t i = 0; i < 5000; ++i) {
    arrays.push_back(array_of(300));
    std::memset(arrays.back().data(), static_cast<int>(i % 251), 300);
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    for (size_t at : {0ul, 299ul}) ASSERT_EQ(arrays[i].data()[at], static_cast<std::byte>(i % 251)) << i;
  }
}

// A process with many rings used to run out of mappings. Each ring was a mapping of its own, and random
// destruction left holes between them.
TEST(RingPool, NeedsFewMappingsForManyRingsThatComeAndGoAtRandom) {
  std::mt19937_64 random(test::seed());
  const size_t before = mappings();
  std::vector<MappedArray> live;
  size_t most = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (live.size() < 10'000 || random() % 2 == 0) {
      const size_t bits = 8 + random() % 9;
      live.push_back(array_of(1 + random() % (size_t{1} << bits)));
      live.back().data()[0] = std::byte{1};
    } else {
      std::swap(live[random() % live.size()], live.back());
      live.pop_back();
    }
    if (i % 10'000 == 0) most = std::max(most, mappings());
  }
  EXPECT_LT(most, before + 600) << live.size() << " rings";
  std::shuffle(live.begin(), live.end(), random);
  while (!live.empty()) live.pop_back();
// The sanitizers keep mappings of their own for freed memory.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(mappings(), before + 30);
#endif
}

TEST(RingPool, ServesManyThreadsAtOnce) {
  const uint64_t base = test::seed();
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([base, seed] {
      std::mt19937_64 random(base + seed);
      std::vector<MappedArray> live;
      for (int i = 0; i < 3000; ++i) {
        if (random() % 3 != 0 || live.empty()) {
          live.push_back(array_of(1 + random() % 2000));
          ASSERT_TRUE(is_zero(live.back()));
          std::memset(live.back().data(), 0xff, live.back().size());
        } else {
          std::swap(live[random() % live.size()], live.back());
          live.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RingPool, WorksInAChildThatIsForkedWhileThreadsUseIt) {
  test::expect_in_children_forked_while([] { array_of(256); }, [] { return is_zero(array_of(256)); });
}

}  // namespace
}  // namespace verbena::queues
