// SPDX-License-Identifier: Apache-2.0
// Memory of another process that is shared already, and so is mapped (mapped_regions.h, peer_memory.h).
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "adapter/engine/support/peer_memory_target.h"
#include "adapter/memory/guarded.h"
#include "adapter/shm/mapped_regions.h"

namespace verbena::engine {
namespace {

using peer_memory_testing::are;
using peer_memory_testing::Initiator;
using peer_memory_testing::kAll;
using peer_memory_testing::kBytes;
using peer_memory_testing::kKey;
using peer_memory_testing::Target;

UniqueFd memory_file(size_t bytes = kBytes, unsigned flags = 0) {
  UniqueFd file(::memfd_create("mapped memory", MFD_CLOEXEC | flags));
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) std::abort();
  return file;
}

// A file in /dev/shm that goes with it.
class NamedFile {
 public:
  explicit NamedFile(const char* folder = "/dev/shm") : path_(std::string(folder) + "/verbena-XXXXXX") {
    file_.reset(::mkstemp(path_.data()));
    if (!file_ || ::ftruncate(file_.get(), kBytes) != 0) std::abort();
  }
  ~NamedFile() { ::unlink(path_.c_str()); }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  int fd() const { return file_.get(); }
  void close() { file_.reset(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd file_;
};

class MappedMemory : public ::testing::Test {
 protected:
  void SetUp() override { memory::install_fault_guard(); }
};

TEST_F(MappedMemory, IsReadWrittenAndChangedWhileItsOwnerIsAwake) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  ASSERT_NE(initiator.memory, nullptr);
  initiator.lane().reader_sleeps = 0;
  ASSERT_TRUE(initiator.maps());
  std::vector<std::byte> buffer(kBytes);
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{4096}, size_t{8193}, kBytes}) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    EXPECT_TRUE(initiator.read(kBytes - bytes, std::span(buffer).first(bytes)));
    EXPECT_TRUE(are(std::span(buffer).first(bytes), 1));
  }
  std::fill(buffer.begin(), buffer.end(), std::byte{3});
  EXPECT_TRUE(initiator.write(0, buffer));
  EXPECT_TRUE(target.pages.are(3));
  const uint64_t five = 5;
  ASSERT_TRUE(initiator.write(64, std::as_bytes(std::span(&five, 1))));
  EXPECT_EQ(initiator.add(64, 2), 5u);
  EXPECT_EQ(initiator.add(64, 1), 7u);
  EXPECT_EQ(initiator.lane().in_access % 2, 0u);
}

TEST_F(MappedMemory, ComparesAndSwaps) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  ASSERT_TRUE(initiator.maps());
  uint64_t word = 5;
  std::memcpy(target.pages.get() + 8, &word, sizeof word);
  const auto request = Initiator::request(8, 8, IBV_ACCESS_REMOTE_ATOMIC);
  EXPECT_EQ(initiator.memory->change(request, {.compares = true, .compare = 4, .swap_add = 9}), 5u);
  EXPECT_EQ(initiator.memory->change(request, {.compares = true, .compare = 5, .swap_add = 9}), 5u);
  std::memcpy(&word, target.pages.get() + 8, sizeof word);
  EXPECT_EQ(word, 9u);
}

TEST_F(MappedMemory, NothingIsDoneThatTheBoardDoesNotAllow) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  ASSERT_TRUE(initiator.maps());
  std::vector<std::byte> buffer(kBytes);
  EXPECT_FALSE(initiator.read(1, buffer));
  EXPECT_FALSE(initiator.write(1, buffer));
  EXPECT_EQ(initiator.add(kBytes, 1), std::nullopt);
  EXPECT_EQ(initiator.add(4, 1), std::nullopt);  // not aligned
  target.withdraw();
  EXPECT_FALSE(initiator.read(0, std::span(buffer).first(8)));
  EXPECT_FALSE(initiator.write(0, std::span(buffer).first(8)));
  EXPECT_EQ(initiator.add(0, 1), std::nullopt);
  EXPECT_TRUE(target.pages.are(1));
}

// ---- which memory is

TEST_F(MappedMemory, PrivateMemoryIsNot) {
  const Target target;
  const Initiator initiator(target);
  EXPECT_FALSE(initiator.maps());
  EXPECT_EQ(initiator.add(0, 1), std::nullopt);
}

// As a program maps it that closes the file: there is only its name.
TEST_F(MappedMemory, AFileIsFoundByItsName) {
  NamedFile file;
  const Target target(file.fd());
  file.close();
  const Initiator initiator(target);
  ASSERT_TRUE(initiator.maps());
  const std::array<std::byte, 8> bytes{};
  EXPECT_TRUE(initiator.write(8, bytes));
  EXPECT_TRUE(are({target.pages.get() + 8, 8}, 0));
}

TEST_F(MappedMemory, AnotherFileOfTheNameIsNotIt) {
  NamedFile file;
  const NamedFile other;
  const Target target(file.fd());
  file.close();
  ASSERT_EQ(::rename(other.path().c_str(), file.path().c_str()), 0);
  const Initiator initiator(target);
  const std::array<std::byte, 8> bytes{};
  // The kernel lets root, and nobody else, have what has no name any more; then it is the right one.
  if (initiator.maps()) {
    EXPECT_TRUE(initiator.write(8, bytes));
    EXPECT_TRUE(are({target.pages.get() + 8, 8}, 0));
  }
  UniqueFd found(::open(file.path().c_str(), O_RDONLY));
  std::array<std::byte, 16> content;
  content.fill(std::byte{7});
  ASSERT_EQ(::pread(found.get(), content.data(), content.size(), 0), 16);
  EXPECT_TRUE(are(content, 0));  // and untouched
}

TEST_F(MappedMemory, AFileOnADiskIsNot) {
  const std::string folder = std::filesystem::current_path();
  const NamedFile file(folder.c_str());
  struct statfs system {};
  ASSERT_EQ(::fstatfs(file.fd(), &system), 0);
  if (static_cast<uint64_t>(system.f_type) == TMPFS_MAGIC) GTEST_SKIP() << "it lies in memory here";
  const Target target(file.fd());
  const Initiator initiator(target);
  EXPECT_FALSE(initiator.maps());
}

TEST_F(MappedMemory, AFileThatEndsBeforeTheRegionIsNot) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  ASSERT_EQ(::ftruncate(file.get(), kBytes - 4096), 0);
  const Initiator initiator(target);
  EXPECT_FALSE(initiator.maps());
}

TEST_F(MappedMemory, WhatIsPagedOnDemandIsNot) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  target.publish(kAll | IBV_ACCESS_ON_DEMAND);
  const Initiator initiator(target);
  EXPECT_FALSE(initiator.maps());
}

TEST_F(MappedMemory, WhatItsOwnerMayOnlyReadIsOnlyRead) {
  const UniqueFd file = memory_file();
  const Target target(file.get(), PROT_READ);
  const Initiator initiator(target);
  expect_only_read(initiator, 0);
}

TEST_F(MappedMemory, OfAProcessThatDoesNotHaveTheBoardIsNot) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  struct stat board {};
  ASSERT_EQ(::fstat(target.own->file(), &board), 0);
  EXPECT_TRUE(MappedRegions(::getpid(), {board.st_dev, board.st_ino}).can_look());
  EXPECT_FALSE(MappedRegions(::getpid(), {board.st_dev, board.st_ino + 1}).can_look());
  EXPECT_FALSE(MappedRegions(::getppid(), {board.st_dev, board.st_ino}).can_look());
}

// ---- what its owner does to it

TEST_F(MappedMemory, AFileThatIsShortenedIsNotTouchedAnyMore) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  initiator.lane().reader_sleeps = 0;
  ASSERT_TRUE(initiator.maps());
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  std::array<std::byte, 8> bytes{};
  EXPECT_FALSE(initiator.write(8192, bytes));
  EXPECT_FALSE(initiator.memory->is_mapped(kKey));
  EXPECT_FALSE(initiator.read(8192, bytes));
  EXPECT_EQ(initiator.add(8192, 1), std::nullopt);
}

// Each access by itself meets the fault first.
TEST_F(MappedMemory, NoAccessDiesOfAFileThatIsShortened) {
  std::vector<std::byte> bytes(kBytes);
  const std::array<bool (*)(const Initiator&, std::span<std::byte>), 3> accesses{
      [](const Initiator& initiator, std::span<std::byte> b) { return initiator.read(0, b); },
      [](const Initiator& initiator, std::span<std::byte> b) { return initiator.write(0, b); },
      [](const Initiator& initiator, std::span<std::byte>) { return initiator.add(8192, 1).has_value(); }};
  for (const auto access : accesses) {
    const UniqueFd file = memory_file();
    const Target target(file.get());
    const Initiator initiator(target);
    initiator.lane().reader_sleeps = 0;
    ASSERT_TRUE(initiator.maps());
    ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
    EXPECT_FALSE(access(initiator, bytes));
    EXPECT_FALSE(initiator.memory->is_mapped(kKey));
  }
}

// The kernel ends a process that faults where it takes no faults.
TEST_F(MappedMemory, AThreadThatTakesNoFaultsGoesAnotherWay) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  ASSERT_TRUE(initiator.maps());
  std::thread([&] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    EXPECT_FALSE(initiator.memory->is_mapped(kKey));
    EXPECT_EQ(initiator.add(0, 1), std::nullopt);
  }).join();
  EXPECT_TRUE(initiator.memory->is_mapped(kKey));
}

TEST_F(MappedMemory, AKeyThatStandsForAnotherPartIsLookedUpAnew) {
  const UniqueFd file = memory_file();
  const UniqueFd other = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  ASSERT_TRUE(initiator.maps());
  target.withdraw();
  ASSERT_EQ(
      ::mmap(target.pages.get(), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other.get(), 0),
      target.pages.get());
  target.publish();
  std::array<std::byte, 8> bytes;
  bytes.fill(std::byte{9});
  ASSERT_TRUE(initiator.write(0, bytes));  // by another way
  EXPECT_TRUE(are({target.pages.get(), 8}, 9));
  initiator.lane().reader_sleeps = 0;
  ASSERT_TRUE(initiator.maps_again());
  bytes.fill(std::byte{8});
  ASSERT_TRUE(initiator.write(0, bytes));
  EXPECT_TRUE(are({target.pages.get(), 8}, 8));
}

TEST_F(MappedMemory, WhatIsNotUsedIsUnmapped) {
  const UniqueFd file = memory_file();
  const Target target(file.get());
  const Initiator initiator(target);
  ASSERT_TRUE(initiator.maps());
  PeerMemory& memory = *initiator.memory;
  std::array<std::byte, 8> bytes{};
  memory.drop_unused_mappings();
  EXPECT_TRUE(memory.has_mappings());
  ASSERT_TRUE(initiator.read(0, bytes));
  memory.drop_unused_mappings();
  EXPECT_TRUE(memory.has_mappings());
  memory.drop_unused_mappings();
  EXPECT_FALSE(memory.has_mappings());
  EXPECT_FALSE(memory.is_mapped(kKey));
  ASSERT_TRUE(initiator.maps_again());
}

// ---- a deregistration races with those who come

class Dereg : public ::testing::TestWithParam<bool> {};

TEST_P(Dereg, NobodyComesAfterIt) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kRounds = 30;
#else
  constexpr int kRounds = 60;
#endif
  memory::install_fault_guard();
  const UniqueFd file = memory_file();
  const Target target(GetParam() ? file.get() : -1);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> writes{0};
  std::atomic<uint64_t> mapped{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const Initiator initiator(target);
      const size_t bytes = i % 4 == 0 ? kBytes : 32 << i;
      std::vector<std::byte> buffer(bytes);
      while (!over) {
        if (initiator.memory->is_mapped(kKey)) ++mapped;
        if (i % 2 == 0) {
          if (!initiator.read(0, buffer)) continue;
          ++reads;
          if (!are(buffer, 1)) ++wrong;
        } else {
          std::fill(buffer.begin(), buffer.end(), std::byte{1});
          if (initiator.write(0, buffer)) ++writes;
        }
      }
    });
  }
  // Not before those who come have come.
  while (reads == 0 || writes == 0 || (GetParam() && mapped == 0)) std::this_thread::yield();
  for (int round = 0; round < kRounds; ++round) {
    target.withdraw();
    // It is nobody's but ours now.
    target.pages.fill(2);
    std::this_thread::yield();
    if (!target.pages.are(2)) ++wrong;
    target.pages.fill(1);
    target.publish();
    std::this_thread::yield();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, Dereg, ::testing::Bool(),
                         [](const auto& shared) { return std::string(shared.param ? "Shared" : "Private"); });

// ---- how much is kept

TEST(MappedRegions, AreBoundedInNumber) {
  memory::install_fault_guard();
  const UniqueFd file = memory_file();
  const Target target(file.get());
  struct stat board {};
  ASSERT_EQ(::fstat(target.own->file(), &board), 0);
  MappedRegions regions(::getpid(), {board.st_dev, board.st_ino});
  shm::Board& shown = *static_cast<shm::Board*>(
      ::mmap(nullptr, sizeof(shm::Board), PROT_READ, MAP_SHARED, target.own->file(), 0));
  struct stat shared {};
  ASSERT_EQ(::fstat(file.get(), &shared), 0);
  const std::string inode = " " + std::to_string(shared.st_ino) + " ";
  const auto mappings = [&] {
    std::ifstream maps("/proc/self/maps");
    long count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find(inode) != std::string::npos;
    return count;
  };
  ASSERT_EQ(mappings(), 1) << "the owner's";
  for (uint32_t i = 1; i <= 2 * MappedRegions::kMax; ++i) {
    memory::Opening opening;
    opening.base = target.pages.get();
    opening.length = kBytes;
    opening.access = kAll;
    opening.pd = 1;
    opening.key = i << 8;
    target.own->publish(opening);
    const TimePoint end = MonotonicClock::now() + std::chrono::seconds(20);
    while (!regions.expects(i << 8) && MonotonicClock::now() < end) regions.look(shown);
    ASSERT_TRUE(regions.expects(i << 8)) << i;
  }
  EXPECT_EQ(mappings(), 1 + long{MappedRegions::kMax});
  ::munmap(&shown, sizeof(shm::Board));
}

}  // namespace
}  // namespace verbena::engine
