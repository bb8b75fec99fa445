// SPDX-License-Identifier: Apache-2.0
// A writer and a reader of one lane who sleep when they have nothing to do, in every order in which their
// accesses to the shared words can happen and their stores become visible, and with a crash of either
// between any two of them. Every state is visited once; so what holds here holds for these programs.
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "local/lane_reader.h"
#include "local/lane_support.h"
#include "local/lane_writer.h"
#include "local/stepped_word.h"

namespace verbena::local {
namespace {

template <uint32_t kOfEntries, bool kHasFence = true, bool kStoresWait = false>
struct TinyFormat {
  using Word = SteppedWord<kStoresWait>;
  static constexpr uint32_t kEntries = kOfEntries;
  static constexpr uint32_t kPayloadRingBytes = 512;
  static constexpr uint32_t kMostPayload = 128;
  static constexpr uint32_t kMostCopied =
      64;  // a longer payload that is given back too early is seen to change
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
  std::vector<uint32_t> payloads = {0};  // of the entries, by turns
  uint32_t first = 0;                    // where the counters begin
};

enum class WriterAt : uint8_t { kPut, kAsk, kRing, kWait, kBlocked, kDone };
enum class ReaderAt : uint8_t { kNext, kUse, kTakeBack, kRing, kSleep, kBlocked, kWake };
enum class Who : uint8_t { kWriter, kReader };

template <class Format>
struct World {
  BasicLane<Format> lane;
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

// Visits every state that can be reached, depth first.
template <class Format>
class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario) {
    static_assert(std::is_trivially_copyable_v<World<Format>>);
    std::memset(static_cast<void*>(&world_), 0, sizeof world_);
    world_.lane.consumed.value = scenario.first;
    for (auto& entry : world_.lane.entries) entry.sequence.value = scenario.first;
    new (world_.writer) Writer(world_.lane, scenario.first);
    new (world_.reader) Reader(world_.lane, scenario.first);
  }

  // What went wrong, or nothing.
  std::string explore() {
    enter();
    while (!path_.empty() && wrong_.empty()) {
      Place& place = path_.back();
      std::memcpy(static_cast<void*>(&world_), place.world.data(), sizeof world_);
      if (place.tried == kMoves) {
        if (!place.moved) check_end();
        seen_[place.key] = false;
        path_.pop_back();
      } else {
        const uint32_t move = place.tried++;
        if (!make(move)) continue;
        place.moved |= !is_crash(move);
        enter();
      }
    }
    return wrong_;
  }

  size_t states() const { return seen_.size(); }
  size_t ends() const { return ends_; }
  size_t longest() const { return longest_; }

 private:
  using Writer = BasicLaneWriter<Format>;
  using Reader = BasicLaneReader<Format>;

  struct Place {
    uint64_t key;
    uint32_t tried = 0;
    bool moved = false;
    std::vector<std::byte> world;
  };

  // Moves: a step of either program, the oldest store of either becomes visible, either crashes. What a
  // crashed process has stored becomes visible all the same.
  static constexpr uint32_t kMoves = 6;
  static constexpr bool is_crash(uint32_t move) { return move >= 4; }
  static constexpr size_t kMostSteps = 2000;
  bool make(uint32_t move) {
    const uint32_t who = move % 2;
    if (move < 2) return !world_.crashed[who] && (who == 0 ? step_writer() : step_reader());
    SteppedThread& thread = world_.threads[who];
    if (move < 4) {
      if (thread.stores == 0) return false;
      thread.commit_oldest();
      return true;
    }
    if (world_.crashed[0] || world_.crashed[1]) return false;  // one crash is enough
    world_.crashed[who] = true;
    return true;
  }

  void enter() {
    const auto* bytes = reinterpret_cast<const std::byte*>(&world_);
    const uint64_t key = hash(bytes);
    const auto [at, is_new] = seen_.try_emplace(key, true);
    if (!is_new) {
      if (at->second) wrong_ = "they go in a circle";
      return;
    }
    if (path_.size() == kMostSteps) {
      wrong_ = "they do not come to an end";
      return;
    }
    path_.push_back({.key = key, .world = {bytes, bytes + sizeof world_}});
    longest_ = std::max(longest_, path_.size());
  }

  // Of the whole world, padding and all: that is zero from the beginning.
  static uint64_t hash(const std::byte* bytes) {
    uint64_t a = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i + 8 <= sizeof(World<Format>); i += 8) {
      uint64_t word;
      std::memcpy(&word, bytes + i, 8);
      a = (a ^ word) * 0xff51afd7ed558ccd;
      a ^= a >> 32;
    }
    return a;
  }

  // Nothing can move any more.
  void check_end() {
    ++ends_;
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

  // Runs a step of an operation on the writer or the reader. True: it has ended, and what it did is kept.
  template <class End, class Operation>
  bool operate(Who who, std::byte* place, Operation operation) {
    const auto i = static_cast<uint32_t>(who);
    End* end = std::launder(reinterpret_cast<End*>(place));
    std::byte before[sizeof(End)];
    std::memcpy(before, place, sizeof before);
    Stepping::set_started(world_.started[i]);
    const bool ended = Stepping::step(world_.threads[i], [&] { operation(*end); });
    if (!ended) std::memcpy(place, before, sizeof before);
    world_.started[i] = !ended;
    return ended;
  }
  template <class Operation>
  bool write(Operation operation) {
    return operate<Writer>(Who::kWriter, world_.writer, operation);
  }
  template <class Operation>
  bool read(Operation operation) {
    return operate<Reader>(Who::kReader, world_.reader, operation);
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
        if (!is_pattern(world_.entry.head, world_.read, 8) ||
            !is_pattern(world_.entry.payload, ~world_.read, payload_of(world_.read))) {
          wrong_ = "another entry was read than put";
        }
        std::memset(static_cast<void*>(&world_.entry), 0, sizeof world_.entry);
        ++world_.read;
        world_.reader_at = scenario_.gives_back_each ? ReaderAt::kTakeBack : ReaderAt::kNext;
        world_.reader_then = ReaderAt::kNext;
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
  World<Format> world_;
  std::unordered_map<uint64_t, bool> seen_;  // true: on the path to where we are
  std::vector<Place> path_;
  std::string wrong_;
  size_t ends_ = 0;
  size_t longest_ = 0;
};

template <class Format>
void expect_right(const Scenario& scenario) {
  Explorer<Format> explorer(scenario);
  EXPECT_EQ(explorer.explore(), "");
  EXPECT_GT(explorer.ends(), 0u);
  std::printf("%zu states, %zu ends, at most %zu steps\n", explorer.states(), explorer.ends(),
              explorer.longest());
}

template <class Format>
std::string what_goes_wrong(const Scenario& scenario) {
  return Explorer<Format>(scenario).explore();
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

// That the explorer finds what it is for.
TEST(LaneInterleavings, LostWakeUpIsFoundWithoutTheWritersFence) {
  EXPECT_EQ((what_goes_wrong<TinyFormat<4, false>>({.entries = 2})), "the reader sleeps forever");
}

TEST(LaneInterleavings, LostWakeUpIsFoundWhenStoresAreNotSequentiallyConsistent) {
  EXPECT_NE((what_goes_wrong<TinyFormat<2, true, true>>({.entries = 3})), "");
}

}  // namespace
}  // namespace verbena::local
