// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/wide_rings.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/shm/lane_reader.h"
#include "adapter/shm/layout.h"

namespace verbena::engine {
namespace {

constexpr TimePoint kBegin{std::chrono::hours(1)};

// One end of a channel that this process writes, and the other that somebody reads.
struct Connection {
  Connection() : memory(std::make_unique<shm::ChannelMemory>()) {}

  shm::Lane& lane() const { return memory->lanes[0]; }
  bool put(uint32_t bytes) {
    const std::vector<std::byte> payload(bytes);
    const ConstBytes piece = payload;
    return writer.put(shm::EntryKind::kPacket, {}, {&piece, 1}, bytes) == shm::Put::kDone;
  }
  void read_all() {
    shm::LaneReader::Read read;
    while (reader.next(read)) continue;
    reader.take_back();
  }
  // As a stream does: fills the ring, which is then read.
  void stream() {
    while (put(shm::kMaxPayload)) continue;
    read_all();
  }

  std::unique_ptr<shm::ChannelMemory> memory;
  shm::LaneWriter writer{lane()};
  shm::LaneReader reader{lane()};
  RingUse use;
};

class WideRingsTest : public testing::Test {
 protected:
  explicit WideRingsTest(size_t count = WideRings::kMax + 1) : connections(count) {}

  void was_full(size_t which) {
    rings.was_full(connections[which].writer, connections[which].use, now, [this](auto visit) {
      for (Connection& each : connections) visit(each.writer, each.use);
    });
  }
  // Until it is wide, or would be if it might.
  void streams(size_t which) {
    for (uint32_t i = 0; i < WideRings::kTimesFull; ++i) connections[which].stream();
    was_full(which);
    connections[which].stream();
  }
  bool is_wide(size_t which) const { return connections[which].writer.is_wide(); }

  TimePoint now = kBegin;
  std::vector<Connection> connections;
  WideRings rings;
};

TEST_F(WideRingsTest, OneThatIsFullNowAndThenStaysNarrow) {
  connections[0].stream();
  was_full(0);
  EXPECT_FALSE(is_wide(0));
}

TEST_F(WideRingsTest, OneThatIsFullAgainAndAgainIsWide) {
  streams(0);
  EXPECT_TRUE(is_wide(0));
}

TEST_F(WideRingsTest, AreFew) {
  for (size_t i = 0; i <= WideRings::kMax; ++i) streams(i);
  for (size_t i = 0; i < WideRings::kMax; ++i) EXPECT_TRUE(is_wide(i));
  EXPECT_FALSE(is_wide(WideRings::kMax));
}

TEST_F(WideRingsTest, UnusedOnesGiveTheirPlaceToOthers) {
  constexpr size_t kLate = WideRings::kMax;
  for (size_t i = 0; i <= kLate; ++i) streams(i);
  now += WideRings::kUnusedAfter;
  connections[1].stream();
  was_full(kLate);
  EXPECT_TRUE(is_wide(kLate));
  EXPECT_FALSE(is_wide(0));
  EXPECT_TRUE(is_wide(1)) << "has been used meanwhile";
}

// Their readers have locked as much of them as is used (channel_memory.h).
TEST_F(WideRingsTest, OnesToOtherUsersStayNarrow) {
  connections[0].use.may_be_wide = false;
  for (size_t i = 0; i <= WideRings::kMax; ++i) streams(i);
  EXPECT_FALSE(is_wide(0));
  EXPECT_TRUE(is_wide(WideRings::kMax)) << "they take no places of ours";
}

TEST_F(WideRingsTest, OneThatIsFullOfWhatNobodyReadsKeepsItsPlace) {
  constexpr size_t kLate = WideRings::kMax;
  for (size_t i = 0; i < kLate; ++i) {
    streams(i);
    connections[i].put(shm::kMaxPayload);
  }
  streams(kLate);
  now += 2 * WideRings::kUnusedAfter;
  was_full(kLate);
  EXPECT_FALSE(is_wide(kLate));
  EXPECT_TRUE(is_wide(0));
}

TEST_F(WideRingsTest, OthersAreLookedAtNowAndThenOnly) {
  constexpr size_t kLate = WideRings::kMax;
  for (size_t i = 0; i <= kLate; ++i) streams(i);
  for (size_t i = 0; i < kLate; ++i) connections[i].writer.narrow();
  was_full(kLate);
  EXPECT_FALSE(is_wide(kLate));
  now += WideRings::kLookInterval;
  was_full(kLate);
  EXPECT_TRUE(is_wide(kLate));
}

}  // namespace
}  // namespace verbena::engine
