// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/own_map.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/map_line.h"
#include "base/unique_fd.h"

namespace verbena::heap {
namespace {

TEST(ParseMapping, OfAFile) {
  const auto mapping =
      parse_map_line("7f0000000000-7f0000001000 rw-s 00003000 00:01 1024       /memfd:name (deleted)\n");
  ASSERT_TRUE(mapping);
  EXPECT_EQ(mapping->begin, 0x7f0000000000u);
  EXPECT_EQ(mapping->end, 0x7f0000001000u);
  EXPECT_EQ(mapping->protection, PROT_READ | PROT_WRITE);
  EXPECT_TRUE(mapping->shared);
  EXPECT_EQ(mapping->device, makedev(0, 1));
  EXPECT_EQ(mapping->inode, 1024u);
}

TEST(ParseMapping, OfNone) {
  const auto mapping = parse_map_line("5500-5600 r-xp 00000000 00:00 0 \n");
  ASSERT_TRUE(mapping);
  EXPECT_EQ(mapping->protection, PROT_READ | PROT_EXEC);
  EXPECT_FALSE(mapping->shared);
  EXPECT_EQ(mapping->inode, 0u);
  EXPECT_EQ(parse_map_line("5500-5600 ---p 00000000 00:00 0 \n")->protection, PROT_NONE);
}

TEST(ParseMapping, NonsenseIsNone) {
  for (const char* line :
       {"", "\n", "5500", "5500-", "5500-5600 rw", "x-y rw-p 0 0:0 0 ", "5500-5600 rw-p 0 0:0"})
    EXPECT_FALSE(parse_map_line(line)) << line;
}

std::vector<MapLine> all_mappings() {
  std::vector<MapLine> all;
  all.reserve(100'000);  // reserved first, so that the mappings do not change while they are read
  OwnMap map;
  while (const auto mapping = map.next()) all.push_back(*mapping);
  EXPECT_TRUE(map.is_whole());
  return all;
}

TEST(OwnMap, HasWhatIsMapped) {
  constexpr size_t kBytes = 1 << 16;
  const UniqueFd file(::memfd_create("own map", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  struct stat made {};
  ASSERT_EQ(::fstat(file.get(), &made), 0);
  void* const at = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto all = all_mappings();
  const auto found = std::ranges::find(all, reinterpret_cast<uintptr_t>(at), &MapLine::begin);
  ASSERT_NE(found, all.end());
  EXPECT_EQ(found->end, found->begin + kBytes);
  EXPECT_EQ(found->protection, PROT_READ);
  EXPECT_TRUE(found->shared);
  EXPECT_EQ(found->device, made.st_dev);
  EXPECT_EQ(found->inode, made.st_ino);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &MapLine::begin));
  ::munmap(at, kBytes);
}

// Lines longer than the stored part, and more lines than are read at a time.
TEST(OwnMap, HasMappingsOfFilesWithLongNames) {
  constexpr int kFiles = 60;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<UniqueFd> files;
  std::vector<void*> mapped;
  for (int i = 0; i < kFiles; ++i) {
    files.emplace_back(::memfd_create(std::string(240, 'x').c_str(), MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(files.back().get(), static_cast<off_t>(page)), 0);
    mapped.push_back(::mmap(nullptr, page, PROT_READ, MAP_SHARED, files.back().get(), 0));
    ASSERT_NE(mapped.back(), MAP_FAILED);
  }
  const auto all = all_mappings();
  for (void* at : mapped)
    EXPECT_NE(std::ranges::find(all, reinterpret_cast<uintptr_t>(at), &MapLine::begin), all.end());
  for (void* at : mapped) ::munmap(at, page);
}

}  // namespace
}  // namespace verbena::heap
