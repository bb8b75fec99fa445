// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/key_table.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/random.h"

namespace verbena::memory {
namespace {

TEST(Permutation, HitsEveryNumberOnce) {
  std::vector<bool> hit(1 << 24);
  for (uint32_t i = 0; i < hit.size(); ++i) {
    const uint32_t image = permute<24>(i, SipKey{12345, 6789});
    ASSERT_LT(image, hit.size());
    ASSERT_FALSE(hit[image]);
    hit[image] = true;
  }
}

TEST(Permutation, OfTagsHitsEveryNumberOnceForEverySecret) {
  EXPECT_TRUE(rc::check([](uint64_t secret) {
    std::set<uint32_t> images;
    for (uint32_t i = 0; i < 256; ++i) images.insert(permute<8>(i, secret));
    RC_ASSERT(images.size() == 256u);
    RC_ASSERT(*images.rbegin() == 255u);
  }));
}

TEST(Permutation, TellsNothingOfItsNeighbours) {
  // Outputs for consecutive numbers differ in about half of the bits, for any secret.
  constexpr SipKey kKey{7, 8};
  uint64_t flipped = 0;
  for (uint32_t i = 0; i < 10'000; ++i) {
    flipped += static_cast<uint64_t>(__builtin_popcount(permute<24>(i, kKey) ^ permute<24>(i + 1, kKey)));
  }
  EXPECT_NEAR(static_cast<double>(flipped) / 10'000, 12.0, 0.2);
}

TEST(Permutation, DependsOnEveryBitOfItsKey) {
  const auto differs = [](const SipKey& one, const SipKey& other) {
    for (uint32_t i = 0; i < 4; ++i) {
      if (permute<24>(i, one) != permute<24>(i, other)) return true;
    }
    return false;
  };
  constexpr SipKey kKey{1, 2};
  for (uint32_t bit = 0; bit < 64; ++bit) {
    EXPECT_TRUE(differs(kKey, {kKey.low ^ uint64_t{1} << bit, kKey.high})) << bit;
    EXPECT_TRUE(differs(kKey, {kKey.low, kKey.high ^ uint64_t{1} << bit})) << bit;
  }
}

TEST(KeyTable, IsEmptyAtFirst) {
  const KeyTable table(1, 100);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(0xffff'ffff), nullptr);
}

TEST(KeyTable, FindsWhatWasInserted) {
  KeyTable table(1, 100);
  Region region;
  const Result<uint32_t> key = table.insert(&region);
  ASSERT_TRUE(key);
  EXPECT_EQ(region.key, *key);
  EXPECT_EQ(table.find(*key), &region);
  EXPECT_EQ(table.size(), 1u);
}

TEST(KeyTable, ForgetsWhatWasRemoved) {
  KeyTable table(1, 100);
  Region region;
  const uint32_t stale = *table.insert(&region);
  table.remove(stale);
  EXPECT_EQ(table.find(stale), nullptr);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_NE(*table.insert(&region), stale);
  EXPECT_EQ(table.find(stale), nullptr);
}

TEST(KeyTable, ComparesTheTagToo) {
  KeyTable table(1, 100);
  Region region;
  const uint32_t key = *table.insert(&region);
  for (uint32_t tag = 1; tag < 256; ++tag) EXPECT_EQ(table.find(key ^ tag), nullptr);
}

TEST(KeyTable, ChangesATagAndNothingElse) {
  KeyTable table(1, 100);
  std::vector<Region> regions(20);
  for (Region& region : regions) ASSERT_TRUE(table.insert(&region));
  for (Region& region : regions) {
    const uint32_t before = region.key;
    table.set_tag(&region, static_cast<uint8_t>(before + 1));
    EXPECT_EQ(region.key >> 8, before >> 8);
    EXPECT_EQ(table.find(before), nullptr);
    EXPECT_EQ(table.find(region.key), &region);
    EXPECT_EQ(table.find_identity(before), &region);
  }
  for (Region& region : regions) table.remove(region.key);
  EXPECT_EQ(table.size(), 0u);
}

TEST(KeyTable, FindsARegionByItsIdentity) {
  KeyTable table(1, 100);
  Region region;
  EXPECT_EQ(table.find_identity(0x12345678), nullptr);
  const uint32_t key = *table.insert(&region);
  for (uint32_t tag = 0; tag < 256; ++tag) EXPECT_EQ(table.find_identity((key & ~0xffu) | tag), &region);
  EXPECT_EQ(table.find_identity(key ^ 0x100), nullptr);
}

TEST(KeyTable, RefusesMoreThanItsCapacity) {
  KeyTable table(1, 3);
  Region regions[4];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.insert(&regions[i]));
  const Result<uint32_t> refused = table.insert(&regions[3]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOMEM);
  table.remove(regions[1].key);
  EXPECT_TRUE(table.insert(&regions[3]));
  EXPECT_EQ(table.find(regions[0].key), &regions[0]);
}

TEST(KeyTable, DrawsDifferentKeysForDifferentSecrets) {
  KeyTable one(1, 100);
  KeyTable other(2, 100);
  Region region;
  int same = 0;
  for (int i = 0; i < 100; ++i) same += *one.insert(&region) == *other.insert(&region) ? 1 : 0;
  EXPECT_EQ(same, 0);
}

// Half of the secret, from which other values may have been derived, does not determine the keys.
TEST(KeyTable, DrawsDifferentKeysForSecretsThatDifferInAHalf) {
  KeyTable tables[] = {{SipKey{1, 1}, 100}, {SipKey{1, 2}, 100}, {SipKey{2, 1}, 100}};
  Region region;
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const uint32_t keys[] = {*tables[0].insert(&region), *tables[1].insert(&region),
                             *tables[2].insert(&region)};
    same += keys[0] == keys[1] || keys[0] == keys[2] || keys[1] == keys[2] ? 1 : 0;
  }
  EXPECT_EQ(same, 0);
}

TEST(KeyTable, NeverRepeatsAKeyOverAMillionRegistrations) {
  KeyTable table(99, 1000);
  std::vector<Region> regions(500);
  std::vector<uint32_t> seen;
  Random random(99);
  for (Region& region : regions) seen.push_back(*table.insert(&region));
  for (int i = 0; i < 1'000'000; ++i) {
    Region& region = regions[random.below(regions.size())];
    table.remove(region.key);
    seen.push_back(*table.insert(&region));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_GE(seen.front(), 256u);
}

// When every identity has been used, they are used again with other tags, except for those still in use.
TEST(KeyTable, ComesRoundAfterEveryIdentityWithOtherTags) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "minutes of one thread's work, in which there is nothing for the thread sanitizer";
#endif
  KeyTable table(5, 10);
  Region lasting;
  Region passing;
  const uint32_t first = *table.insert(&lasting);
  const uint32_t second = *table.insert(&passing);
  table.remove(second);
  uint32_t key = 0;
  do {
    key = *table.insert(&passing);
    ASSERT_NE(key >> 8, first >> 8);
    table.remove(key);
  } while (key >> 8 != second >> 8);
  EXPECT_NE(key, second);
  EXPECT_EQ(table.find(first), &lasting);
}

TEST(KeyTable, DoesNotAnswerGuesses) {
  KeyTable table(3, 1000);
  std::vector<Region> regions(1000);
  std::set<uint32_t> keys;
  for (Region& region : regions) keys.insert(*table.insert(&region));
  Random random(3);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto guess = static_cast<uint32_t>(random.next());
    ASSERT_EQ(table.find(guess) != nullptr, keys.contains(guess));
  }
}

TEST(KeyTable, BehavesLikeAMap) {
  EXPECT_TRUE(rc::check([](uint64_t secret, const std::vector<uint16_t>& commands) {
    KeyTable table(secret, 1 << 16);
    std::vector<std::unique_ptr<Region>> regions;
    std::map<uint32_t, Region*> model;
    std::set<uint32_t> stale;
    for (uint16_t command : commands) {
      if (command % 3 != 0 || model.empty()) {
        regions.push_back(std::make_unique<Region>());
        const uint32_t key = *table.insert(regions.back().get());
        RC_ASSERT(model.emplace(key, regions.back().get()).second);
        RC_ASSERT(!stale.contains(key));
      } else {
        const auto victim = std::next(model.begin(), static_cast<long>(command % model.size()));
        table.remove(victim->first);
        stale.insert(victim->first);
        model.erase(victim);
      }
      RC_ASSERT(table.size() == model.size());
    }
    for (const auto& [key, region] : model) RC_ASSERT(table.find(key) == region);
    for (uint32_t key : stale) RC_ASSERT(table.find(key) == nullptr);
  }));
}

TEST(KeyTable, StaysRightWhileItGrowsAndShrinksAtRandom) {
  KeyTable table(8, 1 << 16);
  std::vector<Region> regions(20'000);
  std::vector<bool> present(regions.size());
  Random random(8);
  for (int i = 0; i < 300'000; ++i) {
    const size_t n = random.below(regions.size());
    Region& region = regions[n];
    ASSERT_EQ(table.find(region.key), present[n] ? &region : nullptr);
    if (present[n]) {
      table.remove(region.key);
    } else {
      ASSERT_TRUE(table.insert(&region));
    }
    present[n] = !present[n];
  }
  for (size_t n = 0; n < regions.size(); ++n) {
    ASSERT_EQ(table.find(regions[n].key), present[n] ? &regions[n] : nullptr);
  }
}

}  // namespace
}  // namespace verbena::memory
