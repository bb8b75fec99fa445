// SPDX-License-Identifier: Apache-2.0
// A writer and a reader of one lane who sleep when they have nothing to do, in every order in which their
// accesses to the shared words can happen and their stores become visible, and with a crash of either
// between any two of them. Every state is visited once; so what holds here holds for these programs.
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/shm/explorer.h"
#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_support.h"
#include "adapter/shm/lane_writer.h"
#include "adapter/shm/stepped_word.h"

namespace verbena::shm {
namespace {

template <uint32_t kOfEntries, bool kHasFence = true, bool kStoresWait = false>
struct TinyFormat {
  using Word = SteppedWord<kStoresWait>;
  static constexpr uint32_t kEntries = kOfEntries;
  static constexpr RingSizes kRingBytes{512, 1024, 1024};
  static constexpr uint32_t kMaxPayload = 128;
  static constexpr uint32_t kMaxCopied =
      64;  // a longer payload that is given back too early is seen to change
  static constexpr uint32_t kLeastAtStart = 64;
  static constexpr uint32_t kMaxUsedAgain = 256;
  static void full_fence() {
    if (!kHasFence) return;
    Stepping::access([](SteppedThread& thread) {
      thread.commit_all();
      return 0;
    });
  }
};

struct Scenario {
  uint32_t entries = 4;                  // to be sent
  uint32_t batch = 1;                    // entries that the writer puts before it asks whether to ring
  bool gives_back_each = false;          // the reader, not only when it has read all
  bool tells_each = false;               // the reader tells what it has taken as entries of the other lane do
  std::vector<uint32_t> payloads = {0};  // of the entries, by turns
  uint32_t first = 0;                    // where the counters begin
  uint32_t widens_before = UINT32_MAX;   // the entry before which the writer wants all of the payload ring
  bool halves = false;                   // neither writes where the other does (ChannelHalf)
};

enum class WriterAt : uint8_t { kPut, kAsk, kRing, kWait, kBlocked, kDone };
enum class ReaderAt : uint8_t { kNext, kUse, kTell, kTakeBack, kRing, kSleep, kBlocked, kWake };
enum class Who : uint8_t { kWriter, kReader };

template <class Format>
struct World {
  BasicLane<Format> lane;
  BasicLane<Format> readers;   // where the reader's words are, if there are halves
  typename Format::Word told;  // what the reader has taken
  alignas(64) std::byte writer[sizeof(BasicLaneWriter<Format>)];
  alignas(64) std::byte reader[sizeof(BasicLaneReader<Format>)];
  SteppedThread threads[2];
  bool started[2];  // the operation at which the program is has begun
  bool crashed[2];
  bool doorbell[2];  // of the writer, of the reader: it was rung, and has not heard it yet
  WriterAt writer_at;
  WriterAt writer_then;  // after it has asked, and rung
  ReaderAt reader_at;
  ReaderAt reader_then;
  uint32_t put;
  uint32_t read;
  uint32_t rings[2];   // of the writer, of the reader
  uint32_t sleeps[2];  // how many times it asked to be rung
  typename BasicLaneReader<Format>::Read entry;
};

template <class Format>
class LaneExplorer final : public Explorer<World<Format>> {
 public:
  explicit LaneExplorer(const Scenario& scenario) : scenario_(scenario) {
    BasicLane<Format>& readers = scenario.halves ? world_.readers : world_.lane;
    readers.consumed.value = scenario.first;
    world_.told.value = scenario.first;
    for (auto& entry : world_.lane.entries) entry.sequence.value = scenario.first;
    new (world_.writer) Writer(world_.lane, readers, scenario.first);
    new (world_.reader) Reader(world_.lane, readers, scenario.first);
  }

 private:
  using Writer = BasicLaneWriter<Format>;
  using Reader = BasicLaneReader<Format>;

  using Explorer<World<Format>>::world_;
  using Explorer<World<Format>>::wrong_;

  bool step(uint32_t who) override { return who == 0 ? step_writer() : step_reader(); }

  void check_end() override {
    const bool writer_rests = world_.writer_at == WriterAt::kDone || world_.writer_at == WriterAt::kBlocked;
    const bool reader_rests = world_.reader_at == ReaderAt::kBlocked;
    if ((!world_.crashed[0] && !writer_rests) || (!world_.crashed[1] && !reader_rests))
      wrong_ = "one does not rest";
    if (world_.crashed[0] || world_.crashed[1]) return;
    if (world_.writer_at != WriterAt::kDone)
      wrong_ = "the writer waits forever";
    else if (world_.read != scenario_.entries)
      wrong_ = "the reader sleeps forever";
  }

  template <class Operation>
  bool write(Operation operation) {
    return this->template operate<Writer>(0, world_.writer, operation);
  }
  template <class Operation>
  bool read(Operation operation) {
    return this->template operate<Reader>(1, world_.reader, operation);
  }

  void ring(Who whom) {
    const auto i = static_cast<uint32_t>(whom);
    world_.doorbell[i] = true;
    if (++world_.rings[i] > world_.sleeps[i]) wrong_ = "rung more often than asked";
  }
  bool hear(Who who) { return std::exchange(world_.doorbell[static_cast<uint32_t>(who)], false); }
  // Counts that it asks to be rung, once, when it begins to.
  void count_sleep(Who who) {
    const auto i = static_cast<uint32_t>(who);
    if (!world_.started[i]) ++world_.sleeps[i];
  }

  uint32_t payload_of(uint32_t index) const { return scenario_.payloads[index % scenario_.payloads.size()]; }

  bool step_writer() {
    switch (world_.writer_at) {
      case WriterAt::kPut: {
        const auto head = pattern(world_.put, 8);
        const auto payload = pattern(~world_.put, payload_of(world_.put));
        const ConstBytes piece = payload;
        Put put{};
        if (write([&](Writer& w) {
              if (scenario_.tells_each) w.hear_taken(world_.told.load(std::memory_order_acquire));
              if (world_.put == scenario_.widens_before) w.use_ring(RingWidth::kWide);
              put = w.put(EntryKind::kPacket, head, {&piece, 1}, static_cast<uint32_t>(piece.size()));
            })) {
          after_put(put);
        }
        return true;
      }
      case WriterAt::kAsk: {
        bool must = false;
        if (write([&](Writer& w) { must = w.must_ring(); })) {
          world_.writer_at = must ? WriterAt::kRing : world_.writer_then;
        }
        return true;
      }
      case WriterAt::kRing:
        ring(Who::kReader);
        world_.writer_at = world_.writer_then;
        return true;
      case WriterAt::kWait: {
        count_sleep(Who::kWriter);
        bool waits = false;
        if (write([&](Writer& w) { waits = w.wait_for_room({payload_of(world_.put)}); })) {
          world_.writer_at = waits ? WriterAt::kBlocked : WriterAt::kPut;
        }
        return true;
      }
      case WriterAt::kBlocked:
        if (!hear(Who::kWriter)) return false;
        world_.writer_at = WriterAt::kPut;
        return true;
      case WriterAt::kDone:
        return false;
    }
    return false;
  }

  void after_put(Put put) {
    if (put == Put::kFull) {
      world_.writer_at = WriterAt::kAsk;
      world_.writer_then = WriterAt::kWait;
    } else {
      const bool is_last = ++world_.put == scenario_.entries;
      world_.writer_then = is_last ? WriterAt::kDone : WriterAt::kPut;
      world_.writer_at = is_last || world_.put % scenario_.batch == 0 ? WriterAt::kAsk : WriterAt::kPut;
    }
  }

  ReaderAt after_use() const { return scenario_.gives_back_each ? ReaderAt::kTakeBack : ReaderAt::kNext; }

  bool step_reader() {
    switch (world_.reader_at) {
      case ReaderAt::kNext: {
        bool got = false;
        if (read([&](Reader& r) {
              got = r.next(world_.entry);
              if (r.is_broken()) wrong_ = "the lane broke";
            })) {
          world_.reader_at = got ? ReaderAt::kUse : ReaderAt::kTakeBack;
          world_.reader_then = ReaderAt::kSleep;
        }
        return true;
      }
      case ReaderAt::kUse:
        if (is_of_ring(world_.entry.kind)) {
          world_.reader_at = ReaderAt::kNext;
          return true;
        }
        if (!is_pattern(world_.entry.head, world_.read, 8) ||
            !is_pattern(world_.entry.payload, ~world_.read, payload_of(world_.read))) {
          wrong_ = "another entry was read than put";
        }
        std::memset(static_cast<void*>(&world_.entry), 0, sizeof world_.entry);
        ++world_.read;
        world_.reader_at = scenario_.tells_each ? ReaderAt::kTell : after_use();
        world_.reader_then = ReaderAt::kNext;
        return true;
      case ReaderAt::kTell:
        if (read([&](Reader& r) { world_.told.store(r.read_so_far(), std::memory_order_release); })) {
          world_.reader_at = after_use();
        }
        return true;
      case ReaderAt::kTakeBack: {
        bool must = false;
        if (read([&](Reader& r) { must = r.take_back(); })) {
          world_.reader_at = must ? ReaderAt::kRing : world_.reader_then;
        }
        return true;
      }
      case ReaderAt::kRing:
        ring(Who::kWriter);
        world_.reader_at = world_.reader_then;
        return true;
      case ReaderAt::kSleep: {
        count_sleep(Who::kReader);
        bool sleeps = false;
        if (read([&](Reader& r) { sleeps = r.sleep(); })) {
          world_.reader_at = sleeps ? ReaderAt::kBlocked : ReaderAt::kNext;
        }
        return true;
      }
      case ReaderAt::kBlocked:
        if (!hear(Who::kReader)) return false;
        world_.reader_at = ReaderAt::kWake;
        return true;
      case ReaderAt::kWake:
        if (read([](Reader& r) { r.wake(); })) world_.reader_at = ReaderAt::kNext;
        return true;
    }
    return false;
  }

  const Scenario scenario_;
};

template <class Format>
void expect_right(Scenario scenario) {
  for (const bool halves : {false, true}) {
    // How wide the ring is has nothing to do with where the words are.
    if (halves && scenario.widens_before != UINT32_MAX) continue;
    SCOPED_TRACE(halves ? "halves" : "one memory");
    scenario.halves = halves;
    LaneExplorer<Format>(scenario).expect_right();
  }
}

template <class Format>
std::string what_goes_wrong(const Scenario& scenario) {
  return LaneExplorer<Format>(scenario).explore();
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenThereIsRoom) {
  expect_right<TinyFormat<4>>({.entries = 3});
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenEntriesRunOut) {
  expect_right<TinyFormat<2>>({.entries = 3});
  expect_right<TinyFormat<2>>({.entries = 3, .gives_back_each = true});
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenEntriesAreOne) {
  expect_right<TinyFormat<1>>({.entries = 3});
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenWriterAsksOncePerBatch) {
  expect_right<TinyFormat<2>>({.entries = 4, .batch = 3});
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenPayloadRoomRunsOut) {
  expect_right<TinyFormat<8>>({.entries = 5, .batch = 4, .payloads = {128, 128, 64, 128, 128}});
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenCountersOverflow) {
  expect_right<TinyFormat<2>>({.entries = 4, .gives_back_each = true, .payloads = {100, 0}, .first = 0u - 2});
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenTheRingGetsWider) {
  const std::vector<uint32_t> payloads = {128, 128, 64, 128, 128};
  for (const uint32_t before : {0u, 2u, 4u}) {
    expect_right<TinyFormat<8>>({.entries = 5, .batch = 4, .payloads = payloads, .widens_before = before});
    expect_right<TinyFormat<2>>(
        {.entries = 4, .gives_back_each = true, .payloads = {128}, .widens_before = before});
  }
}

TEST(LaneInterleavings, NobodyWaitsForEverWhenTheReaderTellsWhatItHasTaken) {
  const std::vector<uint32_t> payloads = {128, 0, 128, 128};
  expect_right<TinyFormat<2>>({.entries = 3, .tells_each = true, .payloads = payloads});
  expect_right<TinyFormat<2>>(
      {.entries = 4, .gives_back_each = true, .tells_each = true, .payloads = payloads, .first = 0u - 2});
  expect_right<TinyFormat<4>>({.entries = 3, .tells_each = true, .payloads = payloads, .widens_before = 2});
}

// That the explorer finds what it is for.
TEST(LaneInterleavings, LostWakeUpIsFoundWithoutTheWritersFence) {
  EXPECT_EQ((what_goes_wrong<TinyFormat<4, false>>({.entries = 2})), "the reader sleeps forever");
  EXPECT_EQ((what_goes_wrong<TinyFormat<4, false>>({.entries = 2, .halves = true})),
            "the reader sleeps forever");
}

TEST(LaneInterleavings, LostWakeUpIsFoundWhenStoresAreNotSequentiallyConsistent) {
  EXPECT_NE((what_goes_wrong<TinyFormat<2, true, true>>({.entries = 3})), "");
  EXPECT_NE((what_goes_wrong<TinyFormat<2, true, true>>({.entries = 3, .halves = true})), "");
}

}  // namespace
}  // namespace verbena::shm
