// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/window.h"

#include <array>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rapidcheck.h>

namespace verbena::memory {
namespace {

constexpr PdId kPd = 3;
constexpr uint32_t kQpn = 77;
constexpr Access kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr Access kWrite = IBV_ACCESS_REMOTE_WRITE;
constexpr Access kRead = IBV_ACCESS_REMOTE_READ;

size_t count(Region& region) {
  size_t windows = 0;
  for ([[maybe_unused]] const Region& window : region.windows) ++windows;
  return windows;
}

// A region of 1000 bytes at address 0x1000, a window of each type, and the QP's window list.
class Window : public testing::Test {
 protected:
  Window() {
    region.base = bytes.data();
    region.iova = 0x1000;
    region.length = bytes.size();
    region.access = kBindable;
    region.pd = kPd;
    make_window(one, RegionKind::kWindow1, kPd);
    make_window(two, RegionKind::kWindow2, kPd);
    for (Region* each : {&region, &one, &two}) EXPECT_TRUE(keys.insert(each));
  }

  WindowBinding binding(const Region& window) const {
    return {.window_key = window.key,
            .new_key = window.key + 1,
            .region_key = region.key,
            .address = 0x1100,
            .length = 100,
            .access = kWrite | kRead,
            .pd = kPd,
            .qpn = kQpn};
  }
  bool bind(const Region& window) { return bind_window(keys, binding(window), windows); }
  bool bind(const Region& window, auto change) {
    WindowBinding changed = binding(window);
    change(changed);
    return bind_window(keys, changed, windows);
  }
  size_t bound_windows() { return count(region); }
  // Returns the memory that a QP reaches with a key; null if the key does not allow it.
  std::byte* remote(uint32_t key, uint64_t address, uint64_t length, Access wanted = kWrite,
                    uint32_t qpn = kQpn, PdId pd = kPd) const {
    const auto found = keys.open(key);
    return found && found->allows_remote(wanted, pd, qpn) ? found->at(address, length) : nullptr;
  }

  std::array<std::byte, 1000> bytes{};
  KeyTable keys{1, 100};
  BoundWindows windows;
  Region region;
  Region one;
  Region two;
};

TEST_F(Window, OpensNothingBeforeItIsBound) {
  for (const Region* window : {&one, &two}) {
    EXPECT_EQ(remote(window->key, 0x1100, 1), nullptr);
    EXPECT_EQ(remote(window->key, 0, 1), nullptr);
    EXPECT_EQ(remote(window->key, 0x1100, 1, kRead), nullptr);
  }
}

TEST_F(Window, OpensItsPartOfTheRegionOnceBound) {
  for (Region* window : {&one, &two}) {
    ASSERT_TRUE(bind(*window));
    EXPECT_EQ(remote(window->key, 0x1100, 100), bytes.data() + 0x100);
    EXPECT_EQ(remote(window->key, 0x1163, 1, kRead), bytes.data() + 0x163);
    EXPECT_EQ(remote(window->key, 0x10ff, 1), nullptr);
    EXPECT_EQ(remote(window->key, 0x1164, 1), nullptr);
    EXPECT_EQ(remote(window->key, 0x1100, 8, IBV_ACCESS_REMOTE_ATOMIC), nullptr) << "a right not asked for";
    EXPECT_EQ(remote(window->key, 0x1100, 1, kWrite, kQpn, kPd + 1), nullptr);
  }
  EXPECT_EQ(remote(region.key, 0x1100, 1), nullptr) << "the region itself stays closed";
  EXPECT_EQ(bound_windows(), 2u);
}

TEST_F(Window, IsNoLocalKey) {
  for (Region* window : {&one, &two}) {
    ASSERT_TRUE(bind(*window));
    EXPECT_FALSE(window->allows_local(0, kPd));
  }
  EXPECT_TRUE(region.allows_local(IBV_ACCESS_LOCAL_WRITE, kPd));
}

TEST_F(Window, ChangesTheTagOfItsKeyWhenBound) {
  const uint32_t before = one.key;
  ASSERT_TRUE(bind(one));
  EXPECT_EQ(one.key, ibv_inc_rkey(before));
  EXPECT_EQ(keys.find(before), nullptr);
  ASSERT_TRUE(bind(two, [](WindowBinding& b) { b.new_key = 0xab; }));
  EXPECT_EQ(two.key & 0xff, 0xabu);
  EXPECT_EQ(keys.find(two.key), &two);
}

TEST_F(Window, OfType2OpensToItsQpAlone) {
  ASSERT_TRUE(bind(two));
  EXPECT_EQ(remote(two.key, 0x1100, 1, kWrite, kQpn + 1), nullptr);
  ASSERT_TRUE(bind(one));
  EXPECT_NE(remote(one.key, 0x1100, 1, kWrite, kQpn + 1), nullptr) << "type 1 to its protection domain";
}

TEST_F(Window, ThatIsZeroBasedCountsFromItsStart) {
  ASSERT_TRUE(bind(two, [](WindowBinding& b) { b.access |= IBV_ACCESS_ZERO_BASED; }));
  EXPECT_EQ(remote(two.key, 0, 100), bytes.data() + 0x100);
  EXPECT_EQ(remote(two.key, 1, 100), nullptr);
  EXPECT_EQ(remote(two.key, 0x1100, 1), nullptr);
  EXPECT_FALSE(bind(one, [](WindowBinding& b) { b.access |= IBV_ACCESS_ZERO_BASED; }));
}

TEST_F(Window, OfType1IsBoundAnewAtAnyTime) {
  ASSERT_TRUE(bind(one));
  const uint32_t first = one.key;
  ASSERT_TRUE(bind(one, [](WindowBinding& b) { b.address = 0x1000; }));
  EXPECT_EQ(remote(first, 0x1100, 1), nullptr);
  EXPECT_EQ(remote(one.key, 0x1000, 1), bytes.data());
  EXPECT_EQ(bound_windows(), 1u);
}

TEST_F(Window, OfType1IsUnboundByLengthZero) {
  ASSERT_TRUE(bind(one));
  const uint32_t bound = one.key;
  ASSERT_TRUE(bind(one, [](WindowBinding& b) { b.length = b.region_key = 0; }));
  EXPECT_EQ(remote(bound, 0x1100, 1), nullptr);
  EXPECT_EQ(remote(one.key, 0x1100, 1), nullptr);
  EXPECT_EQ(bound_windows(), 0u);
}

TEST_F(Window, OfType2MustBeInvalidToBeBound) {
  ASSERT_TRUE(bind(two));
  EXPECT_FALSE(bind(two));
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.length = 0; }));
  ASSERT_TRUE(invalidate_window(keys, two.key, kPd, kQpn));
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.length = 0; }));
  EXPECT_TRUE(bind(two));
}

TEST_F(Window, OfType2IsInvalidatedByItsOwnQpWithItsVeryKey) {
  ASSERT_TRUE(bind(two));
  EXPECT_FALSE(invalidate_window(keys, two.key + 1, kPd, kQpn));
  EXPECT_FALSE(invalidate_window(keys, two.key, kPd, kQpn + 1));
  EXPECT_FALSE(invalidate_window(keys, two.key, kPd + 1, kQpn));
  EXPECT_NE(remote(two.key, 0x1100, 1), nullptr);
  EXPECT_TRUE(invalidate_window(keys, two.key, kPd, kQpn));
  EXPECT_EQ(remote(two.key, 0x1100, 1), nullptr);
  EXPECT_EQ(bound_windows(), 0u);
  EXPECT_TRUE(windows.empty());
  EXPECT_TRUE(invalidate_window(keys, two.key, kPd, kQpn)) << "once more is no error";
}

TEST_F(Window, OfType1AndRegionsAreNotInvalidated) {
  ASSERT_TRUE(bind(one));
  EXPECT_FALSE(invalidate_window(keys, one.key, kPd, kQpn));
  EXPECT_FALSE(invalidate_window(keys, region.key, kPd, kQpn));
  EXPECT_NE(remote(one.key, 0x1100, 1), nullptr);
}

TEST_F(Window, NeedsARegionThatAllowsBinding) {
  for (const Access access : {IBV_ACCESS_LOCAL_WRITE + 0u, kBindable | IBV_ACCESS_ZERO_BASED}) {
    region.access = access;
    EXPECT_FALSE(bind(one));
    EXPECT_FALSE(bind(two));
  }
}

TEST_F(Window, ThatWritesNeedsARegionThatMayBeWritten) {
  region.access = IBV_ACCESS_MW_BIND;
  for (const Access access : {kWrite, Access{IBV_ACCESS_REMOTE_ATOMIC}}) {
    EXPECT_FALSE(bind(two, [&](WindowBinding& b) { b.access = access; }));
  }
  EXPECT_TRUE(bind(two, [](WindowBinding& b) { b.access = kRead; }));
}

TEST_F(Window, HasOnlyRightsOfAWindow) {
  for (const Access access : {IBV_ACCESS_ON_DEMAND + 0u, kRemoteOnly, 1u << 20}) {
    EXPECT_FALSE(bind(two, [&](WindowBinding& b) { b.access = access; }));
  }
  ASSERT_TRUE(
      bind(two, [](WindowBinding& b) { b.access = kRead | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND; }));
  EXPECT_EQ(two.access, kRead | kRemoteOnly);
}

TEST_F(Window, LiesInsideItsRegion) {
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.address = 0xfff; }));
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.length = 1000 - 0x100 + 1; }));
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.address = UINT64_MAX; }));
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.length = UINT64_MAX; }));
  EXPECT_TRUE(bind(two, [](WindowBinding& b) { b.length = 1000 - 0x100; }));
}

TEST_F(Window, SharesItsProtectionDomainWithRegionAndQp) {
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.pd = kPd + 1; }));
  region.pd = kPd + 1;
  EXPECT_FALSE(bind(two));
  EXPECT_FALSE(bind(two, [](WindowBinding& b) { b.pd = kPd + 1; }));
}

TEST_F(Window, IsNeitherBoundToAWindowNorToANullRegion) {
  ASSERT_TRUE(bind(one));
  EXPECT_FALSE(bind(two, [&](WindowBinding& b) { b.region_key = one.key; }));
  Region null;
  ASSERT_TRUE(make_null(null, kPd));
  ASSERT_TRUE(keys.insert(&null));
  EXPECT_FALSE(bind(two, [&](WindowBinding& b) { b.region_key = null.key, b.access = kRead; }));
}

TEST_F(Window, ThatIsUnknownCannotBeBound) {
  EXPECT_FALSE(bind(two, [&](WindowBinding& b) { b.window_key = region.key; }));
  keys.remove(two.key);
  EXPECT_FALSE(bind(two));
}

TEST_F(Window, IsUnboundWithItsQp) {
  ASSERT_TRUE(bind(two));
  unbind_all(keys, windows);
  EXPECT_EQ(remote(two.key, 0x1100, 1), nullptr);
  EXPECT_EQ(bound_windows(), 0u);
  EXPECT_TRUE(bind(two)) << "and is free for another";
}

// ---- published to other processes

class Shown : public testing::Test, private KeyPublisher {
 protected:
  Shown() {
    keys.set_publisher(*this);
    region.base = bytes.data();
    region.iova = 0x1000;
    region.length = bytes.size();
    region.access = kBindable | IBV_ACCESS_ON_DEMAND;
    region.pd = kPd;
    EXPECT_TRUE(keys.insert(&region));
  }
  Region& make(RegionKind kind) {
    Region& window = made.emplace_back();
    make_window(window, kind, kPd);
    EXPECT_TRUE(keys.insert(&window));
    return window;
  }
  bool bind(const Region& window, uint64_t length = 100) {
    return bind_window(keys,
                       {.window_key = window.key,
                        .new_key = window.key + 1,
                        .region_key = region.key,
                        .address = 0x1100,
                        .length = length,
                        .access = kRead,
                        .pd = kPd,
                        .qpn = kQpn},
                       of_qp);
  }
  // Whether a published key may be used.
  bool is_open(uint32_t key) { return shown.contains(key) && (shown[key].access & kRead) != 0; }

  // Overrides of KeyPublisher.
  void publish(const Opening& opening) override { shown[opening.key] = opening; }
  void withdraw(uint32_t key) override { shown.erase(key); }
  void await_users() override {}
  uint64_t users() override { return 0; }
  bool are_gone(uint64_t) override { return true; }

  std::array<std::byte, 1000> bytes{};
  KeyTable keys{1, 100};
  BoundWindows of_qp;
  Region region;
  std::list<Region> made;
  std::map<uint32_t, Opening> shown;
};

TEST_F(Shown, ItsKeyOfTheMoment) {
  for (const RegionKind kind : {RegionKind::kWindow1, RegionKind::kWindow2}) {
    Region& window = make(kind);
    EXPECT_FALSE(is_open(window.key));
    ASSERT_TRUE(bind(window));
    ASSERT_TRUE(is_open(window.key));
    EXPECT_EQ(shown[window.key].length, 100u);
    EXPECT_EQ(shown[window.key].qpn_mask != 0, kind == RegionKind::kWindow2);
    EXPECT_NE(shown[window.key].access & IBV_ACCESS_ON_DEMAND, 0u) << "as its memory is";
  }
}

TEST_F(Shown, NotTheKeyThatItHadBefore) {
  Region& window = make(RegionKind::kWindow1);
  ASSERT_TRUE(bind(window));
  const uint32_t before = window.key;
  ASSERT_TRUE(bind(window));
  EXPECT_FALSE(shown.contains(before));
  EXPECT_TRUE(is_open(window.key));
  ASSERT_TRUE(bind(window, 0));
  EXPECT_FALSE(is_open(window.key));
}

TEST_F(Shown, NotWhenItIsInvalidOrGoes) {
  Region& window = make(RegionKind::kWindow2);
  ASSERT_TRUE(bind(window));
  ASSERT_TRUE(invalidate_window(keys, window.key, kPd, kQpn));
  EXPECT_FALSE(is_open(window.key));
  ASSERT_TRUE(bind(window));
  unbind_all(keys, of_qp);
  EXPECT_FALSE(is_open(window.key));
  ASSERT_TRUE(bind(window));
  keys.locked([&] { unbind_window(keys, window); });
  EXPECT_FALSE(is_open(window.key));
}

TEST_F(Shown, WhatARefusedBindWouldHaveChangedAsItIs) {
  Region& window = make(RegionKind::kWindow2);
  ASSERT_TRUE(bind(window));
  EXPECT_FALSE(bind(window));
  EXPECT_TRUE(is_open(window.key));
  EXPECT_FALSE(invalidate_window(keys, window.key, kPd, kQpn + 1));
  EXPECT_TRUE(is_open(window.key));
}

// ---- random requests against a model

// The simplest model of the rules, for two protection domains, three QPs, and regions and windows of all
// kinds.
struct Model {
  struct Bound {
    size_t region;
    uint64_t address, length;
    Access access;
    uint32_t qpn;
  };
  std::optional<Bound> bound;
  uint8_t tag;
};

TEST(WindowRules, HoldForAnyRequestsInAnyOrder) {
  constexpr size_t kRegions = 4;
  constexpr size_t kWindows = 4;
  EXPECT_TRUE(rc::check([] {
    KeyTable keys(*rc::gen::arbitrary<uint64_t>(), 100);
    std::array<Region, kRegions> regions;
    std::array<Region, kWindows> windows;
    std::array<BoundWindows, 3> of_qp;
    std::array<Model, kWindows> model;
    const auto one_of = [](size_t count) { return *rc::gen::inRange<size_t>(0, count); };
    for (size_t i = 0; i < kRegions; ++i) {
      regions[i].base = reinterpret_cast<std::byte*>(0x10000 * (i + 1));
      regions[i].iova = 16;
      regions[i].length = 16;
      regions[i].pd = static_cast<PdId>(one_of(2));
      regions[i].access =
          *rc::gen::element(Access{kBindable}, Access{IBV_ACCESS_MW_BIND}, Access{IBV_ACCESS_LOCAL_WRITE});
      RC_ASSERT(keys.insert(&regions[i]).has_value());
    }
    for (size_t i = 0; i < kWindows; ++i) {
      make_window(windows[i], i % 2 == 0 ? RegionKind::kWindow1 : RegionKind::kWindow2,
                  static_cast<PdId>(one_of(2)));
      RC_ASSERT(keys.insert(&windows[i]).has_value());
      model[i].tag = static_cast<uint8_t>(windows[i].key);
    }

    for (int step = 0; step < 60; ++step) {
      const size_t w = one_of(kWindows);
      const size_t r = one_of(kRegions);
      const auto qpn = static_cast<uint32_t>(one_of(3));
      const auto pd = static_cast<PdId>(one_of(2));
      const bool type2 = w % 2 == 1;
      if (one_of(3) == 0) {
        const auto tag = one_of(4) != 0 ? model[w].tag : static_cast<uint8_t>(one_of(256));
        const bool right = type2 && tag == model[w].tag && pd == windows[w].pd &&
                           (!model[w].bound || model[w].bound->qpn == qpn);
        RC_ASSERT(invalidate_window(keys, (windows[w].key & ~0xffu) | tag, pd, qpn) == right);
        if (right) model[w].bound.reset();
      } else {
        const WindowBinding b{
            .window_key = windows[w].key,
            .new_key = windows[w].key + 1,
            .region_key = regions[r].key,
            .address = 14 + one_of(20),
            .length = one_of(18),
            .access = *rc::gen::element(Access{0}, Access{kRead}, Access{kWrite}, Access{kRead | kWrite}),
            .pd = pd,
            .qpn = qpn};
        const bool fits = b.address >= 16 && b.address + b.length <= 32;
        const bool region_allows =
            regions[r].pd == pd && (regions[r].access & IBV_ACCESS_MW_BIND) != 0 && fits &&
            ((b.access & kWrite) == 0 || (regions[r].access & IBV_ACCESS_LOCAL_WRITE) != 0);
        const bool right = windows[w].pd == pd && (!type2 || (!model[w].bound && b.length > 0)) &&
                           (b.length == 0 || region_allows);
        RC_ASSERT(bind_window(keys, b, of_qp[qpn]) == right);
        if (right) {
          ++model[w].tag;
          model[w].bound.reset();
          if (b.length > 0) model[w].bound = Model::Bound{r, b.address, b.length, b.access, qpn};
        }
      }

      std::array<uint32_t, kRegions> bound_to{};
      for (size_t i = 0; i < kWindows; ++i) {
        RC_ASSERT(static_cast<uint8_t>(windows[i].key) == model[i].tag);
        RC_ASSERT(keys.find(windows[i].key) == &windows[i]);
        if (model[i].bound) ++bound_to[model[i].bound->region];
        for (uint32_t q = 0; q < 3; ++q) {
          const bool open = model[i].bound && (model[i].bound->access & kRead) != 0 &&
                            (i % 2 == 0 || model[i].bound->qpn == q);
          const uint64_t at = model[i].bound ? model[i].bound->address : 16;
          const auto opening = keys.open(windows[i].key);
          RC_ASSERT(opening.has_value());
          const std::byte* found =
              opening->allows_remote(kRead, windows[i].pd, q) ? opening->at(at, 1) : nullptr;
          const std::byte* expected = open ? regions[model[i].bound->region].base + (at - 16) : nullptr;
          RC_ASSERT(found == expected);
        }
      }
      for (size_t i = 0; i < kRegions; ++i) RC_ASSERT(count(regions[i]) == bound_to[i]);
    }
    for (BoundWindows& list : of_qp) unbind_all(keys, list);
  }));
}

}  // namespace
}  // namespace verbena::memory
