// SPDX-License-Identifier: Apache-2.0
// A key table that several shards read while others change it. Run it with the sanitizers.
#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "adapter/memory/key_table.h"
#include "adapter/memory/window.h"
#include "base/random.h"
#include "base/seed.h"

namespace verbena::memory {
namespace {

constexpr PdId kPd = 3;

// A reader of the table, as a shard is.
class Reader {
 public:
  explicit Reader(KeyTable& keys) : keys_(keys) { keys_.readers().add(lock_); }
  ~Reader() { keys_.readers().remove(lock_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  template <class Action>
  void section(Action action) {
    const std::lock_guard guard(lock_);
    action();
  }
  SectionLock& lock() { return lock_; }

 private:
  KeyTable& keys_;
  SectionLock lock_;
};

std::unique_ptr<Region> region_of(std::byte* base, uint64_t length) {
  auto region = std::make_unique<Region>();
  region->base = base;
  region->length = length;
  region->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
  region->pd = kPd;
  return region;
}

TEST(KeyFinder, FindsWhatWasPublishedLastHoweverOftenItHasFoundIt) {
  KeyTable keys(1, 1000);
  KeyFinder finder(&keys);
  std::byte memory[64];
  std::vector<std::unique_ptr<Region>> regions;
  for (int i = 0; i < 100; ++i) {
    regions.push_back(region_of(memory, 8));
    ASSERT_TRUE(keys.insert(regions.back().get()));
  }
  for (const uint64_t length : {8u, 16u, 32u}) {
    for (const auto& region : regions) {
      ASSERT_TRUE(finder.find(region->key));
      keys.locked([&] { keys.republish(*region, [&] { region->length = length; }); });
      EXPECT_EQ(finder.find(region->key)->length, length);
    }
    for (int again = 0; again < 3; ++again) {
      for (const auto& region : regions) {
        EXPECT_EQ(finder.find(region->key)->length, length);
        EXPECT_EQ(finder.find(region->key)->key, region->key);
        EXPECT_FALSE(finder.find(region->key ^ 1)) << "the tag is another";
      }
    }
  }
  EXPECT_FALSE(finder.find(0));
  for (const auto& region : regions) {
    const uint32_t key = region->key;
    ASSERT_TRUE(finder.find(key));
    keys.remove(key);
    EXPECT_FALSE(finder.find(key));
  }
}

TEST(KeyTableReaders, FindWhatWasPublishedLast) {
  KeyTable keys(1, 10);
  std::byte memory[16];
  const auto region = region_of(memory, 8);
  const uint32_t key = *keys.insert(region.get());
  region->length = 16;
  EXPECT_EQ(keys.open(key)->length, 8u);
  region->publish();
  EXPECT_EQ(keys.open(key)->length, 16u);
  EXPECT_FALSE(keys.open(key ^ 1));
  keys.remove(key);
  EXPECT_FALSE(keys.open(key));
}

// Deregistration waits for the read section in which a reader may have found the key, and no longer.
TEST(KeyTableReaders, AreWaitedForWhenAKeyIsRemoved) {
  KeyTable keys(1, 10);
  Reader reader(keys);
  Reader idle(keys);
  std::byte memory[16];
  const auto region = region_of(memory, 16);
  const uint32_t key = *keys.insert(region.get());

  reader.lock().lock();
  const auto opening = keys.open(key);
  ASSERT_TRUE(opening);
  std::atomic<bool> section_over{false};
  std::atomic<bool> removed{false};
  std::thread remover([&] {
    keys.remove(key);
    EXPECT_TRUE(section_over);
    removed = true;
  });
  // From here on lookups of the key fail, although the section goes on and its opening stays valid.
  while (keys.open(key)) std::this_thread::yield();
  EXPECT_FALSE(removed);
  EXPECT_NE(opening->at(0, 16), nullptr);
  section_over = true;
  reader.lock().unlock();
  remover.join();
  EXPECT_TRUE(removed);
}

// The table replaced by a larger one is kept for readers that are searching it.
TEST(KeyTableReaders, MayBeSearchingATableThatIsReplaced) {
  KeyTable keys(1, 1 << 12);
  Reader reader(keys);
  const auto lasting = region_of(nullptr, 1);
  const uint32_t key = *keys.insert(lasting.get());
  std::atomic<bool> stop{false};
  std::thread searching([&] {
    while (!stop) reader.section([&] { EXPECT_TRUE(keys.open(key)); });
  });
  std::vector<std::unique_ptr<Region>> regions;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 2000; ++i) {
      regions.push_back(region_of(nullptr, 1));
      ASSERT_TRUE(keys.insert(regions.back().get()));
    }
    for (const auto& region : regions) keys.remove(region->key);
    regions.clear();
  }
  stop = true;
  searching.join();
  keys.remove(key);
}

// Regions come and go, and each frees its memory when it is removed. A reader writes to the regions it finds:
// the address sanitizer reports a write to freed memory.
TEST(KeyTableReaders, NeverUseWhatIsGone) {
  constexpr int kReaders = 2;
  constexpr int kWriters = 2;
  constexpr int kRounds = 1500;
  constexpr size_t kBytes = 256;
  KeyTable keys(1, 1000);
  std::vector<std::atomic<uint32_t>> known(8);
  std::atomic<int> at_work{kWriters};
  const uint64_t seed = test::seed();
  std::vector<std::thread> threads;
  for (int r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      Reader reader(keys);
      KeyFinder finder(&keys);
      Random random(seed + static_cast<uint64_t>(r));
      while (at_work > 0) {
        reader.section([&] {
          const uint32_t key = known[random.below(known.size())].load();
          const auto looked_up = r == 0 ? keys.open(key) : std::nullopt;
          const Opening* const opening = r == 0 ? (looked_up ? &*looked_up : nullptr) : finder.find(key);
          if (opening == nullptr) return;
          ASSERT_EQ(opening->key, key);
          // Atomic, because two readers may have found the same region.
          __atomic_store_n(opening->at(0, kBytes) + random.below(kBytes), std::byte{1}, __ATOMIC_RELAXED);
        });
      }
    });
  }
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      Random random(seed + 100 + static_cast<uint64_t>(w));
      for (int i = 0; i < kRounds; ++i) {
        auto memory = std::make_unique<std::byte[]>(kBytes);
        auto region = region_of(memory.get(), kBytes);
        const uint32_t key = *keys.insert(region.get());
        known[random.below(known.size())] = key;
        std::this_thread::yield();
        keys.remove(key);
      }
      --at_work;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(keys.size(), 0u);
}

// One shard binds a window to alternating ranges. Readers never see a mixture of two of them.
TEST(KeyTableReaders, FindAWindowWholeWhileItIsBound) {
  KeyTable keys(1, 10);
  std::vector<std::byte> memory(64);
  const auto region = region_of(memory.data(), memory.size());
  ASSERT_TRUE(keys.insert(region.get()));
  Region window;
  make_window(window, RegionKind::kWindow1, kPd);
  ASSERT_TRUE(keys.insert(&window));
  std::atomic<uint32_t> key{window.key};
  std::atomic<bool> stop{false};
  std::thread other_shard([&] {
    Reader reader(keys);
    KeyFinder finder(&keys);
    while (!stop) {
      reader.section([&] {
        const Opening* const found = finder.find(key);
        if (found == nullptr || found->length == 0) return;
        // The window is bound to [n, 2n), so address and length agree.
        ASSERT_EQ(found->iova, found->length);
        ASSERT_EQ(found->base, memory.data() + found->length);
      });
    }
  });
  Reader reader(keys);
  BoundWindows of_qp;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const uint64_t n = i % 8;
    reader.section([&] {
      ASSERT_TRUE(bind_window(keys,
                              {.window_key = key,
                               .new_key = key + 1,
                               .region_key = region->key,
                               .address = n,
                               .length = n,
                               .access = IBV_ACCESS_REMOTE_WRITE,
                               .pd = kPd},
                              of_qp));
      key = window.key;
    });
  }
  stop = true;
  other_shard.join();
  unbind_all(keys, region->windows);
}

}  // namespace
}  // namespace verbena::memory
