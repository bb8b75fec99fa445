// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/forked_children.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::provider {
namespace {

struct Cq : ibv_cq {
  LiveObject live;
};

// Owners are compared but never used.
Context& owner(int number) {
  alignas(64) static char owners[8][64];
  return *reinterpret_cast<Context*>(&owners[number]);
}

std::unique_ptr<Cq> make_cq(uint32_t handle) {
  auto cq = std::make_unique<Cq>();
  cq->handle = handle;
  return cq;
}

TEST(LiveObjects, AreFoundFromEntryToLeave) {
  auto cq = make_cq(7);
  EXPECT_EQ(find_owner(cq.get()), nullptr);
  cq->live.enter(cq.get(), owner(1));
  EXPECT_EQ(find_owner(cq.get()), &owner(1));
  cq->live.leave();
  EXPECT_EQ(find_owner(cq.get()), nullptr);
  cq->live.enter(cq.get(), owner(2));
  EXPECT_EQ(find_owner(cq.get()), &owner(2));
}

TEST(LiveObjects, LeaveWhenTheyAreDestroyedAndAreNotReadThen) {
  auto cq = make_cq(7);
  cq->live.enter(cq.get(), owner(1));
  const ibv_cq* const stale = cq.get();
  cq.reset();
  EXPECT_EQ(find_owner(stale), nullptr);  // the address sanitizer would report an access to it
}

TEST(LiveObjects, AreNotThoseOfAnotherKind) {
  auto cq = make_cq(7);
  cq->live.enter(cq.get(), owner(1));
  EXPECT_EQ(find_owner(reinterpret_cast<const ibv_qp*>(cq.get())), nullptr);
  EXPECT_EQ(find_owner(reinterpret_cast<const ibv_cq*>(cq.get())), &owner(1));
}

TEST(LiveObjects, AreNotThoseWhoseHandleWasSpoiled) {
  auto cq = make_cq(7);
  cq->live.enter(cq.get(), owner(1));
  cq->handle = 8;
  EXPECT_EQ(find_owner(cq.get()), nullptr);
  cq->handle = 7;
  EXPECT_EQ(find_owner(cq.get()), &owner(1));
}

TEST(LiveObjects, AreNotThoseWhoseContextWasChanged) {
  auto cq = make_cq(7);
  cq->live.enter(cq.get(), owner(1));
  ibv_context other{};
  cq->context = &other;
  EXPECT_EQ(find_owner(cq.get()), nullptr);
  cq->context = nullptr;
  EXPECT_EQ(find_owner(cq.get()), &owner(1));
}

TEST(LiveObjects, DoNotIncludeNullOrAnyOtherPointer) {
  EXPECT_EQ(find_owner(static_cast<ibv_pd*>(nullptr)), nullptr);
  EXPECT_EQ(find_owner(reinterpret_cast<ibv_pd*>(8)), nullptr);
  EXPECT_EQ(find_owner(reinterpret_cast<ibv_pd*>(UINTPTR_MAX)), nullptr);
}

TEST(LiveObjects, AreFoundAmongAHundredThousand) {
  std::deque<Cq> cqs(100'000);
  for (uint32_t i = 0; i < cqs.size(); ++i) {
    cqs[i].handle = i;
    cqs[i].live.enter(&cqs[i], owner(static_cast<int>(i % 8)));
  }
  for (uint32_t i = 0; i < cqs.size(); i += 2) cqs[i].live.leave();
  for (uint32_t i = 0; i < cqs.size(); ++i) {
    ASSERT_EQ(find_owner(&cqs[i]), i % 2 == 0 ? nullptr : &owner(static_cast<int>(i % 8))) << i;
  }
}

TEST(LiveObjects, ComeAndGoInManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number] {
      for (int round = 0; round < 20; ++round) {
        std::deque<Cq> cqs(200);
        for (Cq& cq : cqs) cq.live.enter(&cq, owner(number));
        for (Cq& cq : cqs) ASSERT_EQ(find_owner(&cq), &owner(number));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LiveObjects, AreThereInAChildThatIsForkedWhileThreadsComeAndGo) {
  Cq mine{};
  mine.live.enter(&mine, owner(2));
  test::expect_in_children_forked_while(
      [] {
        Cq cq{};
        cq.live.enter(&cq, owner(1));
      },
      [&] {
        Cq another{};
        another.live.enter(&another, owner(3));
        return find_owner(&mine) == &owner(2) && find_owner(&another) == &owner(3);
      });
}

}  // namespace
}  // namespace verbena::provider
