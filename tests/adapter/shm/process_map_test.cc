// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/process_map.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::engine {
namespace {

const char* const kText =
    "555500000000-555500002000 r--p 00000000 fe:00 4711                       /usr/bin/program\n"
    "7f0000000000-7f0000010000 rw-s 00004000 00:01 1024                       /memfd:a name (deleted)\n"
    "7f0000010000-7f0000020000 r--s 00014000 00:01 1024                       /memfd:a name (deleted)\n"
    "7f0000020000-7f0000021000 rw-s 00030000 00:01 1024                       /memfd:a name (deleted)\n"
    "7f0000021000-7f0000022000 rw-s 00025000 00:01 1025                       /memfd:other (deleted)\n"
    "7f0000022000-7f0000023000 rw-p 00000000 00:00 0 \n"
    "7f0000024000-7f0000025000 rw-p 00000000 00:01 1024                       /memfd:a name (deleted)\n"
    "7f0000100000-7f0000200000 rw-s 00000000 00:1a 7                          /dev/shm/file\n"
    "7ffff0000000-7ffff0021000 rw-p 00000000 00:00 0                          [stack]\n"
    "not a line\n";

constexpr uint64_t kStart = 0x7f00'0000'0000;

TEST(ProcessMap, FindsTheFileOfAStretch) {
  const auto found = ProcessMap(kText).find(kStart + 0x1000, kStart + 0x3000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file, (FileIdentity{makedev(0, 1), 1024}));
  EXPECT_EQ(found->offset, 0x5000u);
  EXPECT_TRUE(found->writable);
  EXPECT_EQ(found->path, "/memfd:a name (deleted)");
  EXPECT_EQ(found->mapping_begin, kStart);
  EXPECT_EQ(found->mapping_end, kStart + 0x10000);
}

TEST(ProcessMap, FindsWhatIsShownInSeveralLines) {
  const auto found = ProcessMap(kText).find(kStart + 0x8000, kStart + 0x20000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset, 0xc000u);
  EXPECT_FALSE(found->writable);  // a part of it is not
}

TEST(ProcessMap, FindsAWholeMapping) {
  const auto found = ProcessMap(kText).find(0x7f00'0010'0000, 0x7f00'0020'0000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file, (FileIdentity{makedev(0, 0x1a), 7}));
  EXPECT_EQ(found->path, "/dev/shm/file");
}

TEST(ProcessMap, FindsNothingThatIsNotOneStretchOfOneSharedFile) {
  const ProcessMap map(kText);
  const auto finds = [&](uint64_t begin, uint64_t end) { return map.find(begin, end).has_value(); };
  EXPECT_FALSE(finds(kStart + 0x1f000, kStart + 0x20001));  // another place in the file
  EXPECT_FALSE(finds(kStart + 0x20000, kStart + 0x22000));  // another file
  EXPECT_FALSE(finds(kStart + 0x21fff, kStart + 0x22001));  // memory without a file
  EXPECT_FALSE(finds(kStart + 0x22000, kStart + 0x22001));
  EXPECT_FALSE(finds(kStart + 0x23000, kStart + 0x24001));  // a hole
  EXPECT_FALSE(finds(kStart + 0x24000, kStart + 0x24001));  // private
  EXPECT_FALSE(finds(kStart - 1, kStart + 1));
  EXPECT_FALSE(finds(0x7f00'001f'ffff, 0x7f00'0020'0001));
  EXPECT_FALSE(finds(0xffff'ffff'ffff'0000, UINT64_MAX));
  EXPECT_FALSE(ProcessMap("").find(kStart, kStart + 1));
}

// A segment's number as a file is its identifier, and the first has 0.
TEST(ProcessMap, FindsSystemVSegments) {
  const ProcessMap map(
      "7f0000000000-7f0000010000 rw-s 00000000 00:01 0                          /SYSV00000000 (deleted)\n"
      "7f0000010000-7f0000020000 rw-s 00001000 00:01 98305                      /SYSV4d017fa3 (deleted)\n"
      "7f0000020000-7f0000021000 rw-s 00000000 00:01 2147483648                 /SYSV00000000 (deleted)\n"
      "7f0000021000-7f0000022000 rw-s 00000000 00:01 98305                      /memfd:SYSV (deleted)\n"
      "7f0000022000-7f0000023000 rw-s 00000000 00:00 0 \n");
  const auto segment_at = [&](uint64_t begin) {
    const auto found = map.find(kStart + begin, kStart + begin + 0x1000);
    return found ? segment_behind(*found) : std::nullopt;
  };
  EXPECT_EQ(segment_at(0), 0);
  EXPECT_EQ(segment_at(0x10000), 98305);
  EXPECT_EQ(segment_at(0x20000), std::nullopt);  // no identifier is so large
  EXPECT_EQ(segment_at(0x21000), std::nullopt);
  EXPECT_FALSE(map.find(kStart + 0x22000, kStart + 0x22001));
}

// A file may have the number that a segment has.
TEST(ProcessMap, TellsASegmentFromAFileOfItsNumber) {
  const ProcessMap map(
      "7f0000000000-7f0000010000 rw-s 00000000 00:01 7                          /SYSV00000000 (deleted)\n"
      "7f0000010000-7f0000020000 rw-s 00010000 00:01 7                          /memfd:file (deleted)\n");
  EXPECT_TRUE(map.find(kStart, kStart + 0x10000));
  EXPECT_FALSE(map.find(kStart, kStart + 0x10001));
}

TEST(ProcessMap, KnowsWhichFilesAreMappedForWriting) {
  const ProcessMap map(kText);
  EXPECT_TRUE(map.maps_for_writing({makedev(0, 1), 1024}));
  EXPECT_FALSE(map.maps_for_writing({makedev(0, 2), 1024}));
  EXPECT_FALSE(map.maps_for_writing({makedev(0, 1), 1023}));
  EXPECT_FALSE(map.maps_for_writing({makedev(0xfe, 0), 4711}));
}

TEST(ProcessMap, ReadsThatOfAProcess) {
  const UniqueFd file(::memfd_create("process map", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
  void* const at = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto ourselves = ProcessFolder::open(::getpid());
  ASSERT_TRUE(ourselves);
  const auto map = ProcessMap::read(*ourselves);
  ASSERT_TRUE(map);
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const auto found = map->find(begin + 4096, begin + 8192);
  struct stat is {};
  ASSERT_EQ(::fstat(file.get(), &is), 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file, (FileIdentity{is.st_dev, is.st_ino}));
  EXPECT_EQ(found->offset, 4096u);
  ::munmap(at, 8192);
}

TEST(ProcessFolder, OfNobodyIsAnError) {
  EXPECT_FALSE(ProcessFolder::open(0));
  EXPECT_FALSE(ProcessFolder::open(-1));
}

// Even if another has its number by then.
TEST(ProcessFolder, ShowsNothingWhenItsProcessHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto folder = ProcessFolder::open(child);
  ASSERT_TRUE(folder);
  EXPECT_TRUE(ProcessMap::read(*folder));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(ProcessMap::read(*folder));
  EXPECT_FALSE(folder->look_at("ns/ipc"));
}

}  // namespace
}  // namespace verbena::engine
