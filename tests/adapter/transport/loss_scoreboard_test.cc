// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/loss_scoreboard.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace verbena::transport {
namespace {

using roce::Psn;

class HolesTest : public testing::Test {
 protected:
  void SetUp() override { holes.reset(Psn(100)); }
  bool fill(uint32_t first, uint32_t limit) {
    return holes.fill(
        Psn(first), Psn(limit), now,
        [this](Psn from, Psn to, LossScoreboard::State) {
          for (Psn psn = from; psn != to; ++psn)
            EXPECT_TRUE(arrived.insert(psn.value()).second) << psn.value();
        },
        [this](const LossScoreboard::Hole&) { ++closed; });
  }
  std::vector<std::pair<uint32_t, uint32_t>> missing() const {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (const LossScoreboard::Hole& hole : holes.all())
      all.emplace_back(hole.first.value(), hole.limit.value());
    return all;
  }
  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

  LossScoreboard holes;
  std::set<uint32_t> arrived;
  int closed = 0;
  TimePoint now{std::chrono::seconds(1)};
};

TEST_F(HolesTest, AreWhatLaterArrivalsSkip) {
  fill(105, 110);
  fill(112, 113);
  EXPECT_EQ(missing(), (Ranges{{100, 105}, {110, 112}}));
  EXPECT_EQ(holes.top(), Psn(113));
}

TEST_F(HolesTest, CloseInPartsAndFromTheMiddle) {
  fill(110, 111);
  fill(103, 105);
  EXPECT_EQ(missing(), (Ranges{{100, 103}, {105, 110}}));
  fill(100, 103);
  fill(104, 110);
  EXPECT_EQ(missing(), Ranges{});
  EXPECT_EQ(arrived.size(), 11u);
}

// A partly filled hole that cannot be split must not count: reports repeat it, and each would count it again.
TEST_F(HolesTest, StayWholeWhereThereIsNoRoomToSplitThem) {
  for (uint32_t i = 0; i < LossScoreboard::kMax; ++i) ASSERT_TRUE(fill(110 + 11 * i, 111 + 11 * i));
  for (uint32_t i = 0; i < LossScoreboard::kMax; ++i) ASSERT_TRUE(fill(104 + 11 * i, 105 + 11 * i));
  ASSERT_EQ(holes.all().size(), LossScoreboard::kMaxParts);
  const size_t before = arrived.size();
  const int closed_before = closed;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(fill(102, 103));
  EXPECT_EQ(arrived.size(), before);
  EXPECT_EQ(closed, closed_before);
  EXPECT_TRUE(fill(102, 104));
  EXPECT_EQ(arrived.size(), before + 2) << "with all that is behind it there is room";
}

TEST_F(HolesTest, AreSentAgainFirstThoseThatWereLostFirst) {
  fill(105, 110);
  fill(112, 113);
  EXPECT_EQ(holes.first_lost(), nullptr);
  for (LossScoreboard::Hole& hole : holes.all()) hole.lost = true;
  EXPECT_EQ(holes.first_lost()->first, Psn(100));
  holes.sent_again(Psn(102), {.at = now}, [](Psn, Psn) {});
  EXPECT_EQ(holes.first_lost()->first, Psn(102));
  holes.sent_again(Psn(105), {.at = now}, [](Psn, Psn) {});
  EXPECT_EQ(holes.first_lost()->first, Psn(110));
}

// Packets leave one by one. Packets sent within `together` form one hole, not one hole each.
TEST_F(HolesTest, AreOneWhereTheyAreSentAgainTogether) {
  const Duration together = std::chrono::microseconds(100);
  fill(110, 111);
  holes.all()[0].lost = true;
  const TimePoint first = now;
  uint32_t bytes = 0;
  for (uint32_t psn = 101; psn <= 110; ++psn) {
    holes.sent_again(Psn(psn), {.at = now, .together = together},
                     [&](Psn from, Psn to) { bytes += static_cast<uint32_t>(to - from); });
    now += std::chrono::microseconds(20);
  }
  EXPECT_EQ(bytes, 10u);
  EXPECT_EQ(missing(), (Ranges{{100, 106}, {106, 110}}));
  EXPECT_EQ(holes.all()[0].since, first) << "not younger than any part of it";
  EXPECT_EQ(holes.first_lost(), nullptr);
}

TEST_F(HolesTest, AreSentAgainPacketByPacketHoweverManyThereAre) {
  for (uint32_t i = 0; i < LossScoreboard::kMax; ++i) ASSERT_TRUE(fill(110 + 11 * i, 111 + 11 * i));
  for (LossScoreboard::Hole& hole : holes.all()) hole.lost = true;
  for (uint32_t psn = 101; psn <= 110; ++psn) {
    ASSERT_EQ(holes.first_lost()->first, Psn(psn - 1));
    holes.sent_again(Psn(psn), {.at = now}, [](Psn, Psn) {});
    now += std::chrono::microseconds(1);
  }
}

TEST_F(HolesTest, AreSentAgainAsOneWithThoseThatLieBetween) {
  fill(102, 104);
  fill(106, 107);
  fill(109, 112);
  for (LossScoreboard::Hole& hole : holes.all()) hole.lost = true;
  holes.all()[1].lost = false;
  Ranges again;
  holes.sent_again(Psn(108), {.at = now, .asked = true},
                   [&](Psn from, Psn to) { again.emplace_back(from.value(), to.value()); });
  EXPECT_EQ(again, (Ranges{{100, 102}, {107, 108}}));
  EXPECT_EQ(missing(), (Ranges{{100, 102}, {104, 106}, {107, 108}, {108, 109}}));
  EXPECT_EQ(holes.first_lost()->first, Psn(108));
}

TEST_F(HolesTest, AreAwaitedFromWhenWhatWasSentAgainBeganToCome) {
  fill(105, 110);
  holes.all()[0].lost = true;
  holes.sent_again(Psn(105), {.at = now, .asked = true}, [](Psn, Psn) {});
  const TimePoint sent = now;
  now += std::chrono::milliseconds(1);
  EXPECT_EQ(holes.all()[0].since, sent);
  fill(100, 102);
  EXPECT_EQ(missing(), (Ranges{{102, 105}}));
  EXPECT_EQ(holes.all()[0].since, now);
  EXPECT_TRUE(holes.all()[0].begun);
}

TEST_F(HolesTest, EndWithWhatIsAcknowledged) {
  fill(105, 110);
  fill(112, 113);
  holes.advance(Psn(103), now);
  EXPECT_EQ(missing(), (Ranges{{103, 105}, {110, 112}}));
  holes.advance(Psn(200), now);
  EXPECT_TRUE(holes.empty());
  EXPECT_EQ(holes.top(), Psn(200));
}

TEST_F(HolesTest, AreNeverMoreThanTheirMost) {
  for (uint32_t psn = 101; psn < 101 + 4 * LossScoreboard::kMax; psn += 2) fill(psn, psn + 1);
  EXPECT_LE(holes.all().size(), LossScoreboard::kMax);
}

TEST_F(HolesTest, AgreeWithASetWhateverArrives) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const uint32_t begin = static_cast<uint32_t>(random.one_in(2) ? 0xffff80 : 100);
    holes.reset(Psn(begin));
    std::set<uint32_t> there;
    uint32_t top = 0;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<uint32_t>(random.below(250));
      const auto limit = first + 1 + static_cast<uint32_t>(random.below(10));
      const auto mark = [&](Psn from, Psn to, LossScoreboard::State) {
        for (Psn psn = from; psn != to; ++psn) {
          ASSERT_TRUE(there.insert(static_cast<uint32_t>(psn - Psn(begin))).second) << "told twice";
        }
      };
      ASSERT_TRUE(
          holes.fill(Psn(begin + first), Psn(begin + limit), now, mark, [](const LossScoreboard::Hole&) {}));
      for (uint32_t psn = first; psn < limit; ++psn) ASSERT_TRUE(there.contains(psn));
      top = std::max(top, limit);
      uint32_t parts = 0;
      holes.for_each_part(Psn(begin), Psn(begin + 300), [&](Psn from, Psn to, LossScoreboard::State state) {
        for (Psn psn = from; psn != to; ++psn, ++parts) {
          const bool is_there = there.contains(static_cast<uint32_t>(psn - Psn(begin)));
          ASSERT_EQ(state == LossScoreboard::State::kArrived, is_there);
        }
      });
      ASSERT_EQ(parts, 300u);
      ASSERT_EQ(holes.top(), Psn(begin + top));
    }
  }
}

}  // namespace
}  // namespace verbena::transport
