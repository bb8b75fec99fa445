// SPDX-License-Identifier: Apache-2.0
// The other process writes what it likes into the lane, between any two accesses and while they happen. What
// is promised: nothing outside the lane is touched, each call ends, and what is delivered is within bounds.
#include <atomic>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "adapter/memory/guarded.h"
#include "adapter/shm/disturbed_word.h"
#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_support.h"
#include "adapter/shm/lane_writer.h"
#include "base/random.h"
#include "base/seed.h"

namespace verbena::shm {
namespace {

// What the other side does when it gets a turn: scribbles into the lane.
class Scribbler {
 public:
  explicit Scribbler(uint64_t seed) : random_(seed) {}

  template <class Format>
  void scribble(BasicLane<Format>& lane, uint32_t near_index) {
    auto& entry = lane.entries[(near_index + random_.below(3)) % Format::kEntries];
    auto* bytes = reinterpret_cast<std::byte*>(&lane);
    switch (random_.below(8)) {
      case 0:  // anything anywhere
        for (uint64_t n = random_.below(64); n > 0; --n) bytes[random_.below(sizeof lane)] = any_byte();
        return;
      case 1:  // a stretch
        for (uint64_t at = random_.below(sizeof lane), n = random_.below(300); n > 0 && at < sizeof lane;
             --n, ++at) {
          bytes[at] = any_byte();
        }
        return;
      case 2:  // a counter that may be, or nearly
        return scribble(lane.consumed, near_index + static_cast<uint32_t>(random_.below(6)) - 3 +
                                           (random_.one_in(2) ? 2 * Format::kEntries : 0));
      case 3:
        return scribble(lane.reader_sleeps, static_cast<uint32_t>(random_.below(3)));
      case 4:
        return scribble(lane.writer_waits, static_cast<uint32_t>(random_.below(3)));
      case 5:  // an entry that seems to be there
        return scribble(entry.sequence, near_index + static_cast<uint32_t>(random_.below(4)));
      case 6:  // lengths about the bounds
        entry.content.payload_bytes = (Format::kMaxPayload + random_.below(5) - 2) & kPayloadBytesMask;
        entry.content.head_bytes = static_cast<uint8_t>(kMaxHead + random_.below(5) - 2);
        return;
      default:  // a whole entry, such as a good writer would put
        entry.content.kind = EntryKind{static_cast<uint8_t>(1 + random_.below(2))};
        entry.content.head_bytes = static_cast<uint8_t>(random_.below(kMaxHead + 1));
        entry.content.payload_bytes = random_.below(Format::kMaxPayload + 1) & kPayloadBytesMask;
        entry.content.from_start = random_.next() & 1;
        entry.content.taken = near_index + static_cast<uint32_t>(random_.below(6)) - 3;
        if (random_.below(4) == 0) {  // or a mark of a ring, or of none
          entry.content.kind = EntryKind{static_cast<uint8_t>(random_.below(16))};
          entry.content.head_bytes = 0;
          entry.content.payload_bytes = 0;
        }
        return scribble(entry.sequence, near_index + 1);
    }
  }

 private:
  std::byte any_byte() { return static_cast<std::byte>(random_.next()); }
  static void scribble(std::atomic<uint32_t>& word, uint32_t value) { word.store(value); }
  template <class Word>
  static void scribble(Word& word, uint32_t value) {
    word.value = value;
  }

  Random random_;
};

struct DisturbedFormat : LaneFormat {
  using Word = DisturbedWord;
  static void full_fence() { DisturbedWord::disturb(); }
};

// Both ends of a lane. Every call is checked for what is promised whatever lies in the lane.
template <class Format>
class Victim {
 public:
  Victim(BasicLane<Format>& lane, uint32_t first) : lane_(lane), writer_(lane, first), reader_(lane, first) {}

  void call(Random& random) {
    switch (random.below(8)) {
      case 0:
      case 1: {
        const auto bytes = static_cast<uint32_t>(random.below(random.one_in(2) ? 60 : kMaxPayload + 1));
        const ConstBytes piece(payload_, bytes);
        const bool was_broken = writer_.is_broken();
        const Put put = writer_.put(EntryKind::kPacket, ConstBytes(payload_, random.below(kMaxHead + 1)),
                                    {&piece, 1}, bytes);
        ASSERT_NE(put, Put::kFault);
        ASSERT_TRUE(put == Put::kFull || !was_broken);
        put_ += put == Put::kDone;
        return;
      }
      case 2:
        writer_.must_ring();
        // As if the lane were the other one of its channel, too.
        writer_.say_taken(reader_.read_so_far());
        writer_.hear_taken(reader_.taken_by_writer());
        return;
      case 3:
        writer_.has_room({static_cast<uint32_t>(random.below(kMaxPayload + 1))});
        writer_.wait_for_room({static_cast<uint32_t>(random.below(kMaxPayload + 1)),
                               static_cast<uint32_t>(random.below(kEntries))});
        return;
      case 4:
        reader_.take_back();
        return;
      case 5:
        reader_.sleep();
        return;
      case 6:
        reader_.wake();
        if (random.one_in(4)) writer_.use_ring(random.one_in(2) ? RingWidth::kWide : RingWidth::kWidest);
        if (random.one_in(4)) writer_.narrow();
        return;
      default:
        return read();
    }
  }

  void read() {
    typename BasicLaneReader<Format>::Read read{};
    const bool was_broken = reader_.is_broken();
    const bool got = reader_.next(read);
    ASSERT_FALSE(got && was_broken);
    if (!got) return;
    ++read_;
    ASSERT_FALSE(reader_.is_broken());
    ASSERT_TRUE(is_known(read.kind));
    ASSERT_LE(read.head.size(), kMaxHead);
    ASSERT_LE(read.payload.size(), kMaxPayload);
    const ConstBytes own(reinterpret_cast<const std::byte*>(&reader_), sizeof reader_);
    ASSERT_TRUE(lies_in(read.head, own));
    ASSERT_TRUE(lies_in(read.payload, read.payload.size() <= kMaxCopied ? own : ConstBytes(lane_.payload)));
    for (const std::byte b : read.payload)
      sum_ = sum_ + static_cast<uint8_t>(b);  // so that a sanitizer looks
  }

  bool is_broken() const { return writer_.is_broken() && reader_.is_broken(); }
  uint32_t put() const { return put_; }
  uint32_t read_count() const { return read_; }

 private:
  BasicLane<Format>& lane_;
  BasicLaneWriter<Format> writer_;
  BasicLaneReader<Format> reader_;
  std::byte payload_[kMaxPayload] = {};
  uint32_t put_ = 0;
  uint32_t read_ = 0;
  volatile uint32_t sum_ = 0;
};

TEST(HostileLane, LeadsNobodyOutOfBoundsBetweenAnyTwoAccesses) {
  memory::install_fault_guard();
  Random random(test::seed());
  Scribbler scribbler(random.next());
  constexpr uint32_t kMaxAccesses = 5;  // of one call: has_room() and wait_for_room() are two
  uint32_t put = 0;
  uint32_t read = 0;
  uint32_t broken = 0;
  for (uint32_t lap = 0; lap < 2000 && !HasFatalFailure(); ++lap) {
    const Zeroed<BasicLane<DisturbedFormat>> lane;
    const auto first = static_cast<uint32_t>(random.next());
    DisturbedWord::turn = nullptr;
    format_lane(*lane, first);
    const auto victim = std::make_unique<Victim<DisturbedFormat>>(*lane, first);
    const uint64_t rarity = 1 + random.below(40);
    DisturbedWord::turn = [&] {
      if (random.one_in(rarity)) scribbler.scribble(*lane, first + victim->read_count());
    };
    for (uint32_t i = 0; i < 500 && !victim->is_broken() && !HasFatalFailure(); ++i) {
      DisturbedWord::accesses = 0;
      victim->call(random);
      ASSERT_LE(DisturbedWord::accesses, kMaxAccesses);
    }
    put += victim->put();
    read += victim->read_count();
    broken += victim->is_broken();
  }
  DisturbedWord::turn = nullptr;
  // That it was no walk through broken lanes alone, nor through whole ones.
  EXPECT_GT(put, 1000u);
  EXPECT_GT(read, 1000u);
  EXPECT_GT(broken, 100u);
}

#ifndef __SANITIZE_THREAD__  // the race is what this tests
TEST(HostileLane, LeadsNobodyOutOfBoundsWhileTheyRead) {
  memory::install_fault_guard();
  const uint64_t seed = test::seed();
  Random random(seed);
  uint32_t read = 0;
  for (uint32_t lap = 0; lap < 200 && !HasFatalFailure(); ++lap) {
    const Zeroed<Lane> lane;
    std::atomic<uint32_t> near_index{0};
    std::atomic<bool> ends{false};
    std::thread other([&, scribbler = Scribbler(seed + lap)]() mutable {
      while (!ends.load(std::memory_order_relaxed))
        scribbler.scribble(*lane, near_index.load(std::memory_order_relaxed));
    });
    const auto victim = std::make_unique<Victim<LaneFormat>>(*lane, 0);
    for (uint32_t i = 0; i < 20'000 && !victim->is_broken() && !HasFatalFailure(); ++i) {
      victim->call(random);
      near_index.store(victim->read_count(), std::memory_order_relaxed);
    }
    read += victim->read_count();
    ends.store(true, std::memory_order_relaxed);
    other.join();
  }
  EXPECT_GT(read, 100u);
}
#endif

// A lane that stays as it is can make a reader read no more than a lap of it.
TEST(HostileLane, KeepsAReaderBusyNoLongerThanItWrites) {
  const Zeroed<Lane> lane;
  for (uint32_t i = 0; i < kEntries; ++i) {
    lane->entries[i].sequence = i + 1;
    lane->entries[i].content = {.payload_bytes = kMaxPayload,
                                .from_start = i % 2 == 0,
                                .head_bytes = 12,
                                .kind = EntryKind::kPacket,
                                .taken = i,
                                .body = {}};
  }
  LaneReader reader(*lane);
  LaneReader::Read read{};
  uint32_t count = 0;
  while (reader.next(read)) {
    ASSERT_TRUE(lies_in(read.payload, lane->payload));
    ++count;
  }
  EXPECT_EQ(count, kEntries);
}

}  // namespace
}  // namespace verbena::shm
