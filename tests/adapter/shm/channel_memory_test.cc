// SPDX-License-Identifier: Apache-2.0
// The files that two processes of a channel share: how much memory they take, and what the process that gets
// a file can do to the one that made it.
#include "adapter/shm/channel_memory.h"

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_writer.h"
#include "adapter/shm/wide_rings.h"
#include "base/collapsed_file.h"
#include "base/sealed_file.h"

namespace verbena::engine {
namespace {

size_t bytes_in_memory(const UniqueFd& file) {
  struct stat status {};
  EXPECT_EQ(::fstat(file.get(), &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

TEST(Channel, TakesLittleMemoryWhileItsRingsAreNarrow) {
  const auto made = ChannelMapping::make();
  ASSERT_TRUE(made);
  EXPECT_GE(bytes_in_memory(made->second), 2 * shm::kRingBytes.front());
  EXPECT_LE(bytes_in_memory(made->second), shm::kMaxChannelBytes);
  const auto half = make_half();
  ASSERT_TRUE(half);
  EXPECT_GE(bytes_in_memory(half->second), shm::kRingBytes.front());
  EXPECT_LE(bytes_in_memory(half->second), shm::kMaxChannelBytes / 2);
}

// Memory that is missing when it is used would raise SIGBUS.
TEST(Channel, HasTheMemoryOfAWiderRingBeforeItIsUsed) {
  for (const shm::RingWidth width : {shm::RingWidth::kWide, shm::RingWidth::kWidest}) {
    const auto half = make_half();
    ASSERT_TRUE(half);
    shm::LaneWriter writer(half->first.lane());
    WideRings::use_ring(writer, width);
    EXPECT_TRUE(writer.is_wide());
    EXPECT_GE(bytes_in_memory(half->second), shm::ring_bytes<shm::LaneFormat>(width));
  }
}

TEST(Channel, HasAnotherFileThanItsHalf) {
  const auto made = ChannelMapping::make();
  const auto half = make_half();
  ASSERT_TRUE(made && half);
  EXPECT_EQ(ChannelMapping::map(half->second.get()).error().code, EPROTO);
  EXPECT_EQ(map_half(made->second.get()).error().code, EPROTO);
}

// Holes that another process punches into a file keep each access to it waiting.
TEST(HalfOfAChannel, IsChangedByNobodyButItsMaker) {
  const auto made = make_half();
  ASSERT_TRUE(made);
  const int file = made->second.get();
  constexpr size_t kBytes = sizeof(shm::ChannelHalf);
  EXPECT_NE(::fallocate(file, kPunch, 0, kBytes), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::fallocate(file, FALLOC_FL_ZERO_RANGE, 0, kBytes), 0);
  const char byte = 1;
  EXPECT_LT(::pwrite(file, &byte, 1, 0), 0);
  EXPECT_NE(::ftruncate(file, 0), 0);
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  void* const seen = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_NE(::madvise(seen, kBytes, MADV_REMOVE), 0);
  EXPECT_NE(::mprotect(seen, kBytes, PROT_READ | PROT_WRITE), 0);
  ::munmap(seen, kBytes);
  made->first.lane().consumed = 77;
  const auto theirs = map_half(file);
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->lane().consumed, 77u);
}

using test::CollapsedFile;

TEST_F(CollapsedFile, IsNoHalfOfItsMaker) {
  const auto made = make_half();
  ASSERT_TRUE(made);
  EXPECT_EQ(collapse(made->second.get()), EAGAIN);
}

TEST_F(CollapsedFile, IsNoHalfOfItsReader) {
  std::optional<std::pair<OwnHalf, UniqueFd>> made = *make_half();
  const UniqueFd file = std::move(made->second);
  const auto theirs = map_half(file.get());
  ASSERT_TRUE(theirs);
  made.reset();
  EXPECT_EQ(collapse(file.get()), EAGAIN);
}

// Reads from such a file are copies: a pipe would refer to another page, and pin nothing.
TEST(HalfOfAChannel, IsNotMappedFromAFileForDirectReads) {
  const auto made = make_half();
  ASSERT_TRUE(made);
  const std::string name = "/proc/self/fd/" + std::to_string(made->second.get());
  const UniqueFd direct(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!direct) GTEST_SKIP() << "before Linux 6.6 no memfd can be opened so";
  EXPECT_EQ(map_half(direct.get()).error().code, EPROTO);
  ASSERT_EQ(::fcntl(direct.get(), F_SETFL, 0), 0);
  EXPECT_EQ(map_half(direct.get()).error().code, EPROTO) << "its sender can set the flag again";
}

// Returns whether the mapping at this address has the flag of MADV_DONTFORK.
bool is_kept_from_children(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      is_it = begin <= at && at < end;
    if (is_it && line.starts_with("VmFlags:")) return line.find(" dc") != std::string::npos;
  }
  return false;
}

// Another process that maps the file very often would make fork() wait.
TEST(HalfOfAChannel, IsInNoChild) {
  const auto made = make_half();
  ASSERT_TRUE(made);
  const auto theirs = map_half(made->second.get());
  ASSERT_TRUE(theirs);
  EXPECT_TRUE(is_kept_from_children(&made->first.lane()));
  EXPECT_TRUE(is_kept_from_children(&theirs->lane()));
}

TEST(HalfOfAChannel, IsNotMappedWithoutTheSeal) {
  const auto file = make_private_file("test", sizeof(shm::ChannelHalf));
  ASSERT_TRUE(file);
  EXPECT_EQ(map_half(file->get()).error().code, EPROTO);
  ASSERT_TRUE(seal_size(file->get()));
  EXPECT_EQ(map_half(file->get()).error().code, EPROTO);
}

TEST(HalfOfAChannel, IsNotMappedUnlessItIsFormatted) {
  const auto file = make_private_file("test", sizeof(shm::ChannelHalf));
  ASSERT_TRUE(file);
  ASSERT_TRUE(seal_to_its_mappings(file->get()));
  EXPECT_EQ(map_half(file->get()).error().code, EPROTO);
}

// Two halves, each mapped for writing only by its maker: a write by the other end would be a fault.
class Halves : public testing::Test {
 protected:
  struct End {
    explicit End(std::pair<OwnHalf, UniqueFd> made)
        : own(std::move(made.first)), file(std::move(made.second)) {}
    OwnHalf own;
    UniqueFd file;
  };

  bool put() { return writer.put(shm::EntryKind::kPacket, {}) == shm::Put::kDone; }
  uint32_t read_all() {
    shm::LaneReader::Read read;
    uint32_t count = 0;
    while (reader.next(read)) ++count;
    return count;
  }

  End one{std::move(*make_half())};
  End two{std::move(*make_half())};
  TheirHalf one_seen = std::move(*map_half(one.file.get()));
  TheirHalf two_seen = std::move(*map_half(two.file.get()));
  shm::LaneWriter writer{one.own.lane(), two_seen.lane()};
  shm::LaneReader reader{one_seen.lane(), two.own.lane()};
};

TEST_F(Halves, CarryEntriesAgainAndAgain) {
  for (int lap = 0; lap < 3; ++lap) {
    for (uint32_t i = 0; i < shm::kEntries; ++i) ASSERT_TRUE(put());
    EXPECT_FALSE(put());
    EXPECT_EQ(read_all(), shm::kEntries);
    EXPECT_FALSE(reader.take_back());
  }
}

TEST_F(Halves, AReaderIsRungOnceEachTimeThatItSleeps) {
  for (int time = 0; time < 3; ++time) {
    ASSERT_TRUE(reader.sleep());
    ASSERT_TRUE(put());
    EXPECT_TRUE(writer.must_ring());
    ASSERT_TRUE(put());
    EXPECT_FALSE(writer.must_ring());
    reader.wake();
    ASSERT_TRUE(put());
    EXPECT_FALSE(writer.must_ring());
    EXPECT_EQ(read_all(), 3u);
    reader.take_back();
  }
}

TEST_F(Halves, AWriterIsRungOnceEachTimeThatItWaits) {
  for (int time = 0; time < 3; ++time) {
    while (put()) continue;
    ASSERT_TRUE(writer.wait_for_room({}));
    shm::LaneReader::Read read;
    ASSERT_TRUE(reader.next(read));
    EXPECT_TRUE(reader.take_back());
    ASSERT_TRUE(reader.next(read));
    EXPECT_FALSE(reader.take_back());
    ASSERT_TRUE(put());
    ASSERT_TRUE(reader.next(read));
    EXPECT_FALSE(reader.take_back());
  }
}

}  // namespace
}  // namespace verbena::engine
