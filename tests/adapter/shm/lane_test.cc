// SPDX-License-Identifier: Apache-2.0
// What a writer and a reader of a lane promise, rule by rule.
#include <deque>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "adapter/memory/pages.h"
#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_support.h"
#include "adapter/shm/lane_writer.h"

namespace verbena::shm {
namespace {

constexpr uint32_t bytes_of(RingWidth width) {
  return kRingBytes[static_cast<size_t>(width)];
}
constexpr uint32_t kNarrow = bytes_of(RingWidth::kNarrow);

// Both ends of the first lane of a channel. The counters begin at the parameter.
class LaneTest : public testing::TestWithParam<uint32_t> {
 protected:
  LaneTest() { format(*memory, GetParam()); }
  static void SetUpTestSuite() { memory::install_fault_guard(); }

  // Puts an entry whose head and payload are patterns of `which`.
  Put put(uint32_t which, size_t head_bytes, uint32_t payload_bytes) {
    const auto payload = pattern(~which, payload_bytes);
    const ConstBytes piece = payload;
    return writer.put(EntryKind::kPacket, pattern(which, head_bytes), {&piece, 1}, payload_bytes);
  }
  Put put(uint32_t which = 0) { return put(which, 12, 0); }
  uint32_t put_until_full(uint32_t payload_bytes) {
    uint32_t count = 0;
    while (put(count, 12, payload_bytes) == Put::kDone) ++count;
    return count;
  }

  bool reads(uint32_t which, size_t head_bytes, uint32_t payload_bytes) {
    LaneReader::Read read{};
    return reader.next(read) && read.kind == EntryKind::kPacket && is_pattern(read.head, which, head_bytes) &&
           is_pattern(read.payload, ~which, payload_bytes);
  }
  bool reads_nothing() {
    LaneReader::Read read{};
    return !reader.next(read);
  }
  uint32_t read_all() {
    LaneReader::Read read{};
    uint32_t count = 0;
    while (reader.next(read)) ++count;
    return count;
  }

  const Zeroed<ChannelMemory> memory;
  Lane& lane = memory->lanes[0];
  LaneWriter writer{lane, GetParam()};
  LaneReader reader{lane, GetParam()};
};

// From zero, and so that each counter overflows soon: of entries, and of payload bytes.
INSTANTIATE_TEST_SUITE_P(Counters, LaneTest,
                         testing::Values(0u, 0u - 1, 0u - 3, 0u - 200, 0u - kEntries, 0u - 70'000));

TEST_P(LaneTest, IsEmptyAtFirst) {
  EXPECT_TRUE(reads_nothing());
  EXPECT_FALSE(reader.is_broken());
  EXPECT_FALSE(writer.is_broken());
}

TEST_P(LaneTest, KnowsHowFarTheReaderIs) {
  EXPECT_TRUE(writer.is_given_back(writer.put_so_far()));
  put(1);
  const uint32_t first = writer.put_so_far();
  put(2);
  EXPECT_FALSE(writer.is_given_back(first));
  ASSERT_TRUE(reads(1, 12, 0));
  reader.take_back();
  EXPECT_TRUE(writer.is_given_back(first));
  EXPECT_FALSE(writer.is_given_back(writer.put_so_far()));
  ASSERT_TRUE(reads(2, 12, 0));
  reader.take_back();
  EXPECT_TRUE(writer.is_given_back(writer.put_so_far()));
}

TEST_P(LaneTest, HandsOverHeadAndPayloadOfEveryLength) {
  for (const uint32_t head : {0u, 1u, 12u, 28u, kMaxHead - 1, kMaxHead}) {
    for (const uint32_t payload : {0u,  1u,  8u,   28u,  40u,  41u,  51u,   52u,   53u,   63u,
                                   64u, 65u, 255u, 256u, 257u, 512u, 1024u, 4095u, 4096u, kMaxPayload}) {
      ASSERT_EQ(put(head + payload, head, payload), Put::kDone);
      ASSERT_TRUE(reads(head + payload, head, payload)) << head << " and " << payload;
      ASSERT_TRUE(reads_nothing());
      reader.take_back();
    }
  }
}

TEST_P(LaneTest, HandsOverKinds) {
  ASSERT_EQ(writer.put(EntryKind::kPath, {}), Put::kDone);
  ASSERT_EQ(writer.put(EntryKind::kPacket, {}), Put::kDone);
  LaneReader::Read read{};
  ASSERT_TRUE(reader.next(read));
  EXPECT_EQ(read.kind, EntryKind::kPath);
  ASSERT_TRUE(reader.next(read));
  EXPECT_EQ(read.kind, EntryKind::kPacket);
}

TEST_P(LaneTest, KeepsOrderOverManyLaps) {
  for (uint32_t i = 0; i < 5 * kEntries; ++i) {
    ASSERT_EQ(put(2 * i, 12, i % 3 * 200), Put::kDone);
    ASSERT_EQ(put(2 * i + 1, 40, 16), Put::kDone);
    ASSERT_TRUE(reads(2 * i, 12, i % 3 * 200));
    ASSERT_TRUE(reads(2 * i + 1, 40, 16));
    reader.take_back();
  }
}

TEST_P(LaneTest, GathersPieces) {
  const auto all = pattern(5, 1000);
  const ConstBytes bytes = all;
  const ConstBytes pieces[] = {bytes.first(1), bytes.subspan(1, 700), {}, bytes.subspan(701)};
  ASSERT_EQ(writer.put(EntryKind::kPacket, pattern(1, 12), pieces, 1000), Put::kDone);
  const ConstBytes few[] = {bytes.first(3), bytes.subspan(3, 17)};
  ASSERT_EQ(writer.put(EntryKind::kPacket, pattern(1, 12), few, 20), Put::kDone);
  LaneReader::Read read{};
  ASSERT_TRUE(reader.next(read));
  EXPECT_TRUE(is_pattern(read.payload, 5, 1000));
  ASSERT_TRUE(reader.next(read));
  EXPECT_TRUE(std::ranges::equal(read.payload, bytes.first(20)));
}

TEST_P(LaneTest, CopiesWhatIsShortAndLeavesLongPayloadsWhereTheyLie) {
  ASSERT_EQ(put(1, 12, kMaxHead - 12), Put::kDone);
  ASSERT_EQ(put(2, 12, 256), Put::kDone);
  ASSERT_EQ(put(3, 12, 257), Put::kDone);
  LaneReader::Read read{};
  for (const uint32_t payload : {44u, 256u}) {
    ASSERT_TRUE(reader.next(read));
    const auto before = std::vector(read.payload.begin(), read.payload.end());
    const auto head_before = std::vector(read.head.begin(), read.head.end());
    const std::vector<std::byte> lane_before(memory.bytes().begin(), memory.bytes().end());
    std::memset(lane.payload, 0xee, sizeof lane.payload);
    for (Entry& entry : lane.entries) std::memset(&entry.content, 0xee, sizeof entry.content);
    EXPECT_TRUE(std::ranges::equal(read.payload, before)) << payload;
    EXPECT_TRUE(std::ranges::equal(read.head, head_before)) << payload;
    std::ranges::copy(lane_before, memory.bytes().begin());
  }
  ASSERT_TRUE(reader.next(read));
  EXPECT_TRUE(lies_in(read.payload, lane.payload));
  EXPECT_FALSE(lies_in(read.head, memory.bytes()));
}

TEST_P(LaneTest, IsFullWhenAllEntriesAreUsed) {
  EXPECT_EQ(put_until_full(0), kEntries);
  EXPECT_FALSE(writer.has_room({0}));
  ASSERT_TRUE(reads(0, 12, 0));
  EXPECT_EQ(put(), Put::kFull);  // read, but not given back
  reader.take_back();
  EXPECT_TRUE(writer.has_room({0}));
  EXPECT_EQ(put(), Put::kDone);
  EXPECT_EQ(put(), Put::kFull);
  EXPECT_FALSE(writer.is_broken());
}

TEST_P(LaneTest, IsFullWhenThePayloadRingIs) {
  const uint32_t count = put_until_full(kMaxPayload);
  EXPECT_GE(count, kNarrow / kMaxPayload - 1);  // one less if the first did not begin at the start
  EXPECT_LE(count, kNarrow / kMaxPayload);
  EXPECT_FALSE(writer.has_room({kMaxPayload}));
  EXPECT_EQ(put(1000, 12, kMaxHead - 12), Put::kDone);  // but there is room in the lines
  for (uint32_t i = 0; i < count; ++i) ASSERT_TRUE(reads(i, 12, kMaxPayload));
  reader.take_back();
  EXPECT_TRUE(writer.has_room({kMaxPayload}));
  EXPECT_EQ(put(1001, 12, kMaxPayload), Put::kDone);
  EXPECT_TRUE(reads(1000, 12, kMaxHead - 12));
  EXPECT_TRUE(reads(1001, 12, kMaxPayload));
}

TEST_P(LaneTest, UsesMoreOfThePayloadRingOnceItIsEmpty) {
  const uint32_t narrow = put_until_full(kMaxPayload);
  writer.use_ring(RingWidth::kWide);
  EXPECT_TRUE(writer.is_wide());
  ASSERT_TRUE(reads(0, 12, kMaxPayload));
  reader.take_back();
  EXPECT_FALSE(writer.has_room({kMaxPayload})) << "something lies in it";
  EXPECT_EQ(put(1000, 12, kMaxPayload), Put::kFull);
  EXPECT_EQ(put(1000, 12, kMaxHead - 12), Put::kDone) << "in the line";
  for (uint32_t i = 1; i < narrow; ++i) ASSERT_TRUE(reads(i, 12, kMaxPayload));
  ASSERT_TRUE(reads(1000, 12, kMaxHead - 12));
  reader.take_back();
  EXPECT_TRUE(writer.has_room({kMaxPayload}));
  const uint32_t wide = put_until_full(kMaxPayload);
  EXPECT_GE(wide, bytes_of(RingWidth::kWide) / kMaxPayload - 1);
  LaneReader::Read read{};
  ASSERT_TRUE(reader.next(read));
  EXPECT_EQ(read.kind, EntryKind::kWideRing);
  for (uint32_t i = 0; i < wide; ++i) ASSERT_TRUE(reads(i, 12, kMaxPayload));
}

TEST_P(LaneTest, UsesLessOfThePayloadRingOnceItIsEmpty) {
  writer.use_ring(RingWidth::kWidest);
  const uint32_t widest = put_until_full(kMaxPayload);
  EXPECT_GE(widest, bytes_of(RingWidth::kWidest) / kMaxPayload - 1);
  writer.use_ring(RingWidth::kWide);
  EXPECT_FALSE(writer.has_room({kMaxPayload})) << "something lies in it";
  read_all();
  reader.take_back();
  const uint32_t wide = put_until_full(kMaxPayload);
  EXPECT_LE(wide, bytes_of(RingWidth::kWide) / kMaxPayload);
  LaneReader::Read read{};
  ASSERT_TRUE(reader.next(read));
  EXPECT_EQ(read.kind, EntryKind::kWideRing);
  for (uint32_t i = 0; i < wide; ++i) ASSERT_TRUE(reads(i, 12, kMaxPayload));
}

TEST_P(LaneTest, ChangesTheRingNoMoreThanWasWantedInTheEnd) {
  writer.use_ring(RingWidth::kWidest);
  writer.use_ring(RingWidth::kNarrow);
  put_until_full(kMaxPayload);
  LaneReader::Read read{};
  ASSERT_TRUE(reader.next(read));
  EXPECT_EQ(read.kind, EntryKind::kPacket);
}

TEST_P(LaneTest, IsNarrowAgainWhenNothingLiesInTheRing) {
  writer.use_ring(RingWidth::kWidest);
  const uint32_t wide = put_until_full(kMaxPayload);
  EXPECT_FALSE(writer.narrow());
  read_all();
  reader.take_back();
  EXPECT_TRUE(writer.narrow());
  EXPECT_FALSE(writer.is_wide());
  const uint32_t narrow = put_until_full(kMaxPayload);
  EXPECT_LE(narrow, kNarrow / kMaxPayload);
  EXPECT_LT(narrow, wide);
  LaneReader::Read read{};
  ASSERT_TRUE(reader.next(read));
  EXPECT_EQ(read.kind, EntryKind::kNarrowRing);
  for (uint32_t i = 0; i < narrow; ++i) {
    ASSERT_TRUE(reads(i, 12, kMaxPayload));
    EXPECT_FALSE(lies_in(read.payload, writer.beyond_narrow_ring()));
  }
}

TEST_P(LaneTest, MarksOfTheRingSayNothingElse) {
  ASSERT_EQ(put(0, 0, 0), Put::kDone);
  Entry& entry = lane.entries[GetParam() % kEntries];
  entry.content.kind = EntryKind::kWideRing;
  entry.content.head_bytes = 1;
  EXPECT_TRUE(reads_nothing());
  EXPECT_TRUE(reader.is_broken());
}

TEST_P(LaneTest, HasRoomForTheLongestPayloadWhenAQuarterWasGivenBack) {
  for (const uint32_t bytes : {64u, 1000u, 5000u, kMaxPayload - 64, kMaxPayload}) {
    put_until_full(bytes);
    LaneReader::Read read{};
    while (!reader.is_much_read()) ASSERT_TRUE(reader.next(read));
    reader.take_back();
    EXPECT_TRUE(writer.has_room({kMaxPayload})) << bytes;
    EXPECT_EQ(put(0, kMaxHead, kMaxPayload), Put::kDone) << bytes;
    read_all();
    reader.take_back();
  }
}

// As an entry of the other lane would tell it.
class LaneThatTellsTest : public LaneTest {
 protected:
  // Where the payload of the next entry lies.
  const std::byte* read_place() {
    LaneReader::Read read{};
    return reader.next(read) ? read.payload.data() : nullptr;
  }
  void tell() { writer.hear_taken(reader.read_so_far()); }
};
INSTANTIATE_TEST_SUITE_P(Counters, LaneThatTellsTest,
                         testing::Values(0u, 0u - 1, 0u - 3, 0u - 200, 0u - kEntries));

TEST_P(LaneThatTellsTest, UsesTheRingsStartAgainForMessagesThatWaitForEachOther) {
  for (uint32_t i = 0; i < 2 * kNarrow / 4096; ++i) {
    ASSERT_EQ(put(i, 12, 4096), Put::kDone);
    ASSERT_NE(read_place(), nullptr);
    tell();
  }
  for (uint32_t i = 0; i < 3 * kEntries; ++i) {
    ASSERT_EQ(put(i, 12, 4096), Put::kDone);
    ASSERT_EQ(read_place(), lane.payload);
    tell();
  }
  EXPECT_EQ(lane.consumed.load(), GetParam());  // it was never looked at
}

TEST_P(LaneThatTellsTest, LeavesWhatHasNotBeenTaken) {
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_EQ(put(2 * i, 12, 4096), Put::kDone);
    ASSERT_TRUE(reads(2 * i, 12, 4096));
    ASSERT_EQ(put(2 * i + 1, 12, 4096), Put::kDone);
    tell();  // of the first, while the second lies there
    ASSERT_EQ(put(1000, 12, 4096), Put::kDone);
    ASSERT_TRUE(reads(2 * i + 1, 12, 4096));
    ASSERT_TRUE(reads(1000, 12, 4096));
    tell();
  }
}

TEST_P(LaneThatTellsTest, HasAllOfTheRingAfterEntriesThatHadNothingInIt) {
  ASSERT_EQ(put(0, 12, 0), Put::kDone);
  if (GetParam() != 0) put_until_full(kMaxPayload);  // to the ring's start, or near it
  read_all();
  tell();
  ASSERT_EQ(put(1, 12, 4096), Put::kDone);
  ASSERT_NE(read_place(), nullptr);
  ASSERT_EQ(put(2, 12, 0), Put::kDone);
  ASSERT_EQ(put(3, 12, 0), Put::kDone);
  tell();
  ASSERT_EQ(put(4, 12, 4096), Put::kDone);
  ASSERT_TRUE(reads(2, 12, 0));
  ASSERT_TRUE(reads(3, 12, 0));
  tell();
  EXPECT_EQ(put_until_full(kMaxPayload), kNarrow / kMaxPayload - 1);
  ASSERT_TRUE(reads(4, 12, 4096));
  for (uint32_t i = 0; i < kNarrow / kMaxPayload - 1; ++i) ASSERT_TRUE(reads(i, 12, kMaxPayload));
}

TEST_P(LaneThatTellsTest, IsFullUntilItIsTold) {
  const uint32_t count = put_until_full(0);
  EXPECT_EQ(count, kEntries);
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(reads(i, 12, 0));
  EXPECT_FALSE(writer.has_room({}));
  tell();
  EXPECT_TRUE(writer.has_room({}));
  EXPECT_EQ(put_until_full(0), 10u);
  // The reader's counter is behind: that is not nonsense.
  EXPECT_FALSE(writer.is_broken());
  EXPECT_FALSE(writer.is_given_back(writer.put_so_far()));
  reader.take_back();
  EXPECT_FALSE(writer.has_room({}));
}

TEST_P(LaneThatTellsTest, BelievesNothingThatCannotBe) {
  put_until_full(0);
  for (const uint32_t told : {kEntries + 1, 2 * kEntries, 1u << 31, 0u - 1, 0u - kEntries}) {
    writer.hear_taken(GetParam() + told);
    EXPECT_EQ(put(), Put::kFull) << told;
  }
  EXPECT_FALSE(writer.is_broken());
  read_all();
  reader.take_back();
  EXPECT_EQ(put(), Put::kDone);
  writer.hear_taken(GetParam() + 1);  // older than what it knows
  EXPECT_EQ(put_until_full(0), kEntries - 1);
}

TEST_P(LaneThatTellsTest, TravelsWithTheOtherLanesEntries) {
  LaneWriter back(memory->lanes[1], GetParam());
  LaneReader hears(memory->lanes[1], GetParam());
  put_until_full(0);
  EXPECT_EQ(read_all(), kEntries);
  back.say_taken(reader.read_so_far());
  ASSERT_EQ(back.put(EntryKind::kPacket, pattern(3, 20)), Put::kDone);
  LaneReader::Read read{};
  ASSERT_TRUE(hears.next(read));
  writer.hear_taken(hears.taken_by_writer());
  EXPECT_EQ(put_until_full(0), kEntries);
}

TEST_P(LaneTest, FaultInThePayloadLeavesNothingBehind) {
  const auto pages = memory::Pages::anonymous(3);
  pages.remove_rights(1);
  for (const size_t bytes : {20, 300, 8000}) {
    const ConstBytes gone[] = {{pages.page(1) - bytes / 2, bytes}};
    ASSERT_EQ(writer.put(EntryKind::kPacket, pattern(1, 12), gone, static_cast<uint32_t>(bytes)),
              Put::kFault);
    const ConstBytes second_gone[] = {{pages.data(), bytes / 2}, {pages.page(1), bytes - bytes / 2}};
    ASSERT_EQ(writer.put(EntryKind::kPacket, pattern(1, 12), second_gone, static_cast<uint32_t>(bytes)),
              Put::kFault);
    EXPECT_TRUE(reads_nothing());
    EXPECT_FALSE(writer.must_ring());
    ASSERT_EQ(put(7, 12, static_cast<uint32_t>(bytes)), Put::kDone);
    EXPECT_TRUE(reads(7, 12, static_cast<uint32_t>(bytes)));
    EXPECT_TRUE(reads_nothing());
    reader.take_back();
  }
}

TEST_P(LaneTest, FullLaneSaysSoBeforeItTouchesThePayload) {
  put_until_full(0);
  const ConstBytes gone[] = {{static_cast<const std::byte*>(nullptr), 100}};
  EXPECT_EQ(writer.put(EntryKind::kPacket, {}, gone, 100), Put::kFull);
}

TEST_P(LaneTest, ReaderWhoIsAwakeIsNotRung) {
  ASSERT_EQ(put(), Put::kDone);
  EXPECT_FALSE(writer.must_ring());
}

TEST_P(LaneTest, ReaderIsRungOnceForEachTimeItGoesToSleep) {
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(reader.sleep());
    EXPECT_FALSE(writer.must_ring());  // nothing was put
    ASSERT_EQ(put(), Put::kDone);
    ASSERT_EQ(put(), Put::kDone);
    EXPECT_TRUE(writer.must_ring());
    ASSERT_EQ(put(), Put::kDone);
    EXPECT_FALSE(writer.must_ring());
    reader.wake();
    EXPECT_EQ(read_all(), 3u);
    reader.take_back();
  }
}

TEST_P(LaneTest, ReaderDoesNotSleepOverAnEntry) {
  ASSERT_EQ(put(), Put::kDone);
  EXPECT_FALSE(reader.sleep());
  EXPECT_FALSE(writer.must_ring());
  EXPECT_EQ(read_all(), 1u);
  EXPECT_TRUE(reader.sleep());
}

TEST_P(LaneTest, ReaderWhoWokeByItselfIsNotRung) {
  EXPECT_TRUE(reader.sleep());
  reader.wake();
  ASSERT_EQ(put(), Put::kDone);
  EXPECT_FALSE(writer.must_ring());
}

TEST_P(LaneTest, WriterWhoWaitsIsRungOnce) {
  put_until_full(0);
  EXPECT_TRUE(writer.wait_for_room({}));
  EXPECT_FALSE(reader.take_back());  // there is nothing to give back
  ASSERT_TRUE(reads(0, 12, 0));
  EXPECT_TRUE(reader.take_back());
  ASSERT_TRUE(reads(1, 12, 0));
  EXPECT_FALSE(reader.take_back());
  EXPECT_EQ(put(), Put::kDone);
}

TEST_P(LaneTest, WriterDoesNotWaitForRoomThatIsThere) {
  put_until_full(0);
  ASSERT_TRUE(reads(0, 12, 0));
  EXPECT_FALSE(reader.take_back());
  EXPECT_FALSE(writer.wait_for_room({}));
  ASSERT_TRUE(reads(1, 12, 0));
  EXPECT_FALSE(reader.take_back());  // it no longer asks
}

TEST_P(LaneTest, WriterWaitsForRoomForWhatItHadToPut) {
  put_until_full(kMaxPayload);
  ASSERT_EQ(put(0, 12, kMaxPayload), Put::kFull);
  EXPECT_TRUE(writer.wait_for_room({kMaxPayload}));  // though there are entries enough
  read_all();
  EXPECT_TRUE(reader.take_back());
  EXPECT_EQ(put(0, 12, kMaxPayload), Put::kDone);
}

TEST_P(LaneTest, WriterWhoFoundRoomByItselfIsNotRung) {
  put_until_full(0);
  EXPECT_TRUE(writer.wait_for_room({}));
  lane.consumed.fetch_add(1);  // as a reader does who has not yet looked who waits
  EXPECT_EQ(put(), Put::kDone);
  EXPECT_EQ(lane.writer_waits.load(), 0u);
}

// Some entries are for those who must not wait: what they put there is no reason to go on for the others.
TEST_P(LaneTest, WriterWaitsOnWhileOthersFindRoomInWhatIsSpare) {
  constexpr Room kWanted{0, 16};
  put_until_full(0);
  EXPECT_TRUE(writer.wait_for_room(kWanted));
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(reads(i, 12, 0));
  EXPECT_TRUE(reader.take_back());
  EXPECT_FALSE(writer.has_room(kWanted));
  EXPECT_TRUE(writer.wait_for_room(kWanted));
  EXPECT_EQ(put(), Put::kDone);
  EXPECT_EQ(lane.writer_waits.load(), 1u);
  for (uint32_t i = 4; i < 20; ++i) ASSERT_TRUE(reads(i, 12, 0));
  EXPECT_TRUE(reader.take_back());
  EXPECT_FALSE(writer.wait_for_room(kWanted));
  EXPECT_EQ(lane.writer_waits.load(), 0u);
}

TEST_P(LaneTest, ManyEntriesAreMuchRead) {
  put_until_full(0);
  LaneReader::Read read{};
  for (uint32_t i = 0; i < kEntries / 4; ++i) {
    EXPECT_FALSE(reader.is_much_read());
    ASSERT_TRUE(reader.next(read));
  }
  EXPECT_TRUE(reader.is_much_read());
  reader.take_back();
  EXPECT_FALSE(reader.is_much_read());
}

TEST_P(LaneTest, ReaderWhoClaimsWhatWasNotPutBreaksTheLane) {
  for (const uint32_t claimed : {kEntries + 1, 1u << 31, 0u - kEntries - 1}) {
    const Zeroed<Lane> broken;
    format_lane(*broken, GetParam());
    LaneWriter at_it(*broken, GetParam());
    for (uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(at_it.put(EntryKind::kPacket, {}), Put::kDone);
    broken->consumed = GetParam() + claimed;
    EXPECT_FALSE(at_it.has_room({0}));
    EXPECT_EQ(at_it.put(EntryKind::kPacket, {}), Put::kFull);
    EXPECT_TRUE(at_it.is_broken());
    EXPECT_TRUE(at_it.wait_for_room({}));  // forever
    broken->consumed = GetParam() + 1;     // too late
    EXPECT_FALSE(at_it.has_room({0}));
    EXPECT_EQ(at_it.put(EntryKind::kPacket, {}), Put::kFull);
    EXPECT_TRUE(at_it.wait_for_room({}));
  }
}

TEST_P(LaneTest, ClaimOfTheReaderIsFoundOutAlsoWhenThePayloadRingIsFull) {
  put_until_full(kMaxPayload);
  lane.consumed.fetch_add(100);
  EXPECT_EQ(put(0, 12, kMaxPayload), Put::kFull);
  EXPECT_TRUE(writer.is_broken());
  EXPECT_EQ(put(0, 12, 0), Put::kFull);
}

TEST_P(LaneTest, EntryThatCannotBeBreaksTheLane) {
  const auto spoil = {+[](EntryContent& c) { c.kind = EntryKind{0}; },
                      +[](EntryContent& c) { c.kind = EntryKind::kWidestRing; },
                      +[](EntryContent& c) { c.kind = EntryKind{8}; },
                      // As the mark of a ring would be, of which there are not so many.
                      +[](EntryContent& c) { c.head_bytes = 0, c.kind = EntryKind{8}; },
                      +[](EntryContent& c) { c.head_bytes = 0, c.kind = EntryKind{255}; },
                      +[](EntryContent& c) { c.head_bytes = kMaxHead + 1; },
                      +[](EntryContent& c) { c.payload_bytes = kMaxPayload + 1; },
                      +[](EntryContent& c) { c.payload_bytes = kPayloadBytesMask; }};
  for (const auto& spoils : spoil) {
    const Zeroed<Lane> broken;
    format_lane(*broken, GetParam());
    LaneWriter from(*broken, GetParam());
    LaneReader at_it(*broken, GetParam());
    ASSERT_EQ(from.put(EntryKind::kPacket, pattern(1, 12)), Put::kDone);
    ASSERT_EQ(from.put(EntryKind::kPacket, pattern(2, 12)), Put::kDone);
    EntryContent& second = broken->entries[(GetParam() + 1) % kEntries].content;
    const EntryContent good = second;
    spoils(second);
    LaneReader::Read read{};
    EXPECT_TRUE(at_it.next(read));
    EXPECT_FALSE(at_it.next(read));
    EXPECT_TRUE(at_it.is_broken());
    EXPECT_TRUE(at_it.sleep());  // nothing will come, so nothing to ring for
    EXPECT_EQ(broken->reader_sleeps.load(), 0u);
    second = good;  // too late
    EXPECT_FALSE(at_it.next(read));
    at_it.take_back();
    EXPECT_EQ(broken->consumed.load(), GetParam() + 1);
  }
}

TEST_P(LaneTest, EntryOfAnotherLapIsNone) {
  ASSERT_EQ(put(), Put::kDone);
  for (const uint32_t other : {0u - kEntries, kEntries, 1u, 0u - 1}) {
    lane.entries[GetParam() % kEntries].sequence = GetParam() + 1 + other;
    EXPECT_TRUE(reads_nothing());
    EXPECT_FALSE(reader.is_broken());
  }
}

TEST_P(LaneTest, LanesOfAChannelAreTheirOwn) {
  LaneWriter back(memory->lanes[1], GetParam());
  LaneReader hears(memory->lanes[1], GetParam());
  ASSERT_EQ(back.put(EntryKind::kPacket, pattern(3, 20)), Put::kDone);
  EXPECT_TRUE(reads_nothing());
  LaneReader::Read read{};
  ASSERT_TRUE(hears.next(read));
  EXPECT_TRUE(is_pattern(read.head, 3, 20));
}

// Any sequence of calls against a model: a list of what is under way.
TEST(LaneModel, HandsOverEachEntryOnceAndInOrder) {
  memory::install_fault_guard();
  EXPECT_TRUE(rc::check([](uint32_t first) {
    const Zeroed<Lane> lane;
    format_lane(*lane, first);
    LaneWriter writer(*lane, first);
    LaneReader reader(*lane, first);
    struct Sent {
      uint32_t which;
      uint32_t head;
      uint32_t payload;
    };
    std::deque<Sent> under_way;
    uint32_t count = 0;
    const auto calls = *rc::gen::container<std::vector<uint32_t>>(400, rc::gen::arbitrary<uint32_t>());
    for (const uint32_t call : calls) {
      if (call % 4 != 0) {
        const uint32_t payload = (call >> 3) % 3 == 0 ? (call >> 8) % 60 : (call >> 8) % (kMaxPayload + 1);
        const Sent what{count++, (call >> 2) % (kMaxHead + 1), payload};
        const auto bytes = pattern(~what.which, what.payload);
        const ConstBytes pieces[] = {ConstBytes(bytes).first(payload / 3),
                                     ConstBytes(bytes).subspan(payload / 3)};
        const bool room = writer.has_room({payload});
        const Put put = writer.put(EntryKind::kPacket, pattern(what.which, what.head), pieces, payload);
        RC_ASSERT(put == Put::kDone || (put == Put::kFull && !room));
        if (put == Put::kDone) under_way.push_back(what);
      } else {
        LaneReader::Read read{};
        for (uint32_t i = 0; i < call % 11; ++i) {
          const bool got = reader.next(read);
          RC_ASSERT(got == !under_way.empty());
          if (!got) break;
          const Sent what = under_way.front();
          under_way.pop_front();
          RC_ASSERT(is_pattern(read.head, what.which, what.head));
          RC_ASSERT(is_pattern(read.payload, ~what.which, what.payload));
        }
        if (call & 16) writer.hear_taken(reader.read_so_far() - (call >> 5) % 3);
        if (call & 32) RC_ASSERT(!reader.take_back());
      }
    }
    RC_ASSERT(!writer.is_broken() && !reader.is_broken());
  }));
}

}  // namespace
}  // namespace verbena::shm
