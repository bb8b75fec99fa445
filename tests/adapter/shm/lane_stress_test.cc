// SPDX-License-Identifier: Apache-2.0
// A writer and a reader who run at the same time, and who sleep in the kernel when they have nothing to do: a
// lost wake-up is a wait that does not end.
#include <algorithm>
#include <csignal>
#include <span>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_support.h"
#include "adapter/shm/lane_writer.h"
#include "base/random.h"
#include "base/seed.h"
#include "base/unique_fd.h"

namespace verbena::shm {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kScale = 1;
#else
constexpr uint32_t kScale = 5;
#endif
constexpr uint32_t kFirst = 0u - 20'000;  // the counters overflow on the way

class Doorbell {
 public:
  void ring() const {
    const uint64_t one = 1;
    if (write(fd_.get(), &one, sizeof one) != sizeof one) abort();
  }
  // False: it has not been rung for so long that it never will.
  bool hear() const {
    pollfd waits{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    constexpr int kMaxMilliseconds = 30'000;
    if (poll(&waits, 1, kMaxMilliseconds) != 1) return false;
    uint64_t rings;
    return read(fd_.get(), &rings, sizeof rings) == sizeof rings;
  }

 private:
  UniqueFd fd_{eventfd(0, EFD_CLOEXEC)};
};

// A channel's lane that a child process shares.
class SharedLane {
 public:
  explicit SharedLane(uint32_t first)
      : memory_(static_cast<ChannelMemory*>(mmap(nullptr, sizeof(ChannelMemory), PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (memory_ == MAP_FAILED) abort();
    format(*memory_, first);
  }
  ~SharedLane() { munmap(memory_, sizeof(ChannelMemory)); }
  SharedLane(const SharedLane&) = delete;
  SharedLane& operator=(const SharedLane&) = delete;
  Lane& operator*() const { return memory_->lanes[0]; }

 private:
  ChannelMemory* memory_;
};

// One end of the lane each, as a process would use it. Both know from the seed what is sent.
struct Exchange {
  Lane& lane;
  uint64_t seed;
  uint32_t entries;
  uint32_t max_payload;
  uint32_t max_batch;
  Doorbell of_reader{};
  Doorbell of_writer{};

  uint32_t payload_of(uint32_t index) const {
    return static_cast<uint32_t>(Random(seed + index).below(max_payload + 1));
  }

  // False: it was not rung.
  bool send() const {
    LaneWriter writer(lane, kFirst);
    Random random(seed);
    for (uint32_t i = 0; i < entries;) {
      for (uint64_t batch = 1 + random.below(max_batch); batch > 0 && i < entries; --batch, ++i) {
        if (!put(writer, i)) return false;
      }
      if (writer.must_ring()) of_reader.ring();
      if (random.one_in(8)) std::this_thread::yield();
      if (random.one_in(16)) {
        const auto width = static_cast<RingWidth>(random.below(kRingWidths));
        width == RingWidth::kNarrow ? static_cast<void>(writer.narrow()) : writer.use_ring(width);
      }
    }
    return !writer.is_broken();
  }
  bool put(LaneWriter& writer, uint32_t i) const {
    const auto payload = pattern(~i, payload_of(i));
    const ConstBytes piece = payload;
    while (writer.put(EntryKind::kPacket, pattern(i, 12), {&piece, 1}, payload_of(i)) != Put::kDone) {
      if (writer.must_ring()) of_reader.ring();
      if (writer.is_broken() || (writer.wait_for_room({payload_of(i)}) && !of_writer.hear())) return false;
    }
    return true;
  }

  // How many entries were right before one was not, or before the doorbell was not rung.
  uint32_t receive() const {
    LaneReader reader(lane, kFirst);
    Random random(~seed);
    uint32_t count = 0;
    while (count < entries) {
      LaneReader::Read read{};
      while (reader.next(read)) {
        if (is_of_ring(read.kind)) continue;
        if (!is_pattern(read.head, count, 12) || !is_pattern(read.payload, ~count, payload_of(count)))
          return count;
        ++count;
        if (reader.is_much_read() && reader.take_back()) of_writer.ring();
      }
      if (reader.take_back()) of_writer.ring();
      if (reader.is_broken()) return count;
      if (random.one_in(4)) continue;  // polls on for a while
      if (count < entries && reader.sleep() && !of_reader.hear()) return count;
      reader.wake();
    }
    return count;
  }
};

uint32_t exchange_between_threads(uint32_t entries, uint32_t max_payload, uint32_t max_batch) {
  const Zeroed<Lane> lane;
  format_lane(*lane, kFirst);
  const Exchange exchange{*lane, test::seed(), entries, max_payload, max_batch};
  bool sent = false;
  std::thread writer([&] { sent = exchange.send(); });
  const uint32_t received = exchange.receive();
  writer.join();
  EXPECT_TRUE(sent);
  return received;
}

TEST(LaneStress, BothSleepAndAreWoken) {
  EXPECT_EQ(exchange_between_threads(kScale * 40'000, 40, 4), kScale * 40'000);
}

TEST(LaneStress, ReaderIsWokenForEachEntry) {
  EXPECT_EQ(exchange_between_threads(kScale * 10'000, 0, 1), kScale * 10'000);
}

TEST(LaneStress, LongBatchesFillTheLane) {
  EXPECT_EQ(exchange_between_threads(kScale * 20'000, 100, 2 * kEntries), kScale * 20'000);
}

TEST(LaneStress, LongPayloadsFillTheRing) {
  EXPECT_EQ(exchange_between_threads(kScale * 3'000, kMaxPayload, 40), kScale * 3'000);
}

// A request and its answer. Each side polls for a moment and then sleeps, often just when the other answers;
// and no later entry makes good a wake-up that was lost.
TEST(LaneStress, PingPongNeverHangs) {
  const Zeroed<ChannelMemory> memory;
  format(*memory);
  const Doorbell bells[2];
  const uint32_t rounds = kScale * 20'000;
  const uint64_t seed = test::seed();
  const auto play = [&](uint32_t side) {
    Random random(seed + side);
    bool slept = false;
    LaneWriter writer(memory->lanes[side]);
    LaneReader reader(memory->lanes[1 - side]);
    const auto put = [&](uint32_t number) {
      // Nothing between the two: it would give the store the time that a fence does.
      if (writer.put(EntryKind::kPacket, std::as_bytes(std::span(&number, 1))) != Put::kDone) return false;
      if (writer.must_ring()) bells[1 - side].ring();
      return true;
    };
    for (uint32_t i = 0; i < rounds; ++i) {
      if (side == 0 && !put(i)) return false;
      LaneReader::Read read{};
      // About as long as an answer takes, so that it often comes just when we go to sleep; after a sleep as
      // long as a wake-up takes, else both would sleep each time.
      uint64_t polls = std::exchange(slept, false) ? 20'000 : random.below(400);
      while (!reader.next(read)) {
        if (polls > 0) {
          --polls;
          continue;
        }
        slept = reader.sleep();
        if (slept && !bells[side].hear()) return false;
        reader.wake();
      }
      if (!std::ranges::equal(read.head, std::as_bytes(std::span(&i, 1))) || reader.take_back()) return false;
      if (side == 1 && !put(i)) return false;
    }
    return true;
  };
  bool other = false;
  std::thread thread([&] { other = play(1); });
  EXPECT_TRUE(play(0));
  thread.join();
  EXPECT_TRUE(other);
}

#ifndef __SANITIZE_THREAD__  // it sees one process only
TEST(LaneStress, GoesFromOneProcessToAnother) {
  const SharedLane lane(kFirst);
  const Exchange exchange{*lane, test::seed(), kScale * 10'000, 2000, 20};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(exchange.send() ? 0 : 1);
  EXPECT_EQ(exchange.receive(), exchange.entries);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(LaneStress, WriterKilledAnywhereLeavesWholeEntries) {
  const uint64_t seed = test::seed();
  Random random(seed);
  for (uint32_t i = 0; i < kScale * 10; ++i) {
    const SharedLane lane(kFirst);
    const Exchange exchange{*lane, seed + i, 1'000'000, 3000, 20};
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(exchange.send() ? 0 : 1);
    LaneReader reader(*lane, kFirst);
    uint32_t count = 0;
    const auto read_all = [&] {
      LaneReader::Read read{};
      while (reader.next(read)) {
        if (is_of_ring(read.kind)) continue;
        ASSERT_TRUE(is_pattern(read.head, count, 12)) << count;
        ASSERT_TRUE(is_pattern(read.payload, ~count, exchange.payload_of(count))) << count;
        ++count;
      }
      if (reader.take_back()) exchange.of_writer.ring();
    };
    const uint64_t until = random.below(2000);
    while (count < until && !HasFatalFailure()) read_all();
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    read_all();  // what it put before it died
    EXPECT_FALSE(reader.is_broken());
    EXPECT_TRUE(reader.sleep());
  }
}
#endif

}  // namespace
}  // namespace verbena::shm
