// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/elf_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/seed.h"

namespace verbena::commands::doctor {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(ElfFile, ReadsWhatALoaderWould) {
  const auto own = read_elf_file("/proc/self/exe");
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->is_64_bit);
  EXPECT_TRUE(own->dynamic);
  EXPECT_EQ(own->machine, own_elf_file().machine);
  EXPECT_THAT(own->interpreter, HasSubstr("ld-linux"));
  EXPECT_THAT(own->needed, Contains("libc.so.6"));
  EXPECT_EQ(own->rpath, "");
  EXPECT_TRUE(std::ranges::any_of(own->needed_versions, [](const ElfFile::NeededVersion& one) {
    return one.library == "libc.so.6" && one.version.starts_with("GLIBC_2.");
  }));
  EXPECT_TRUE(own->has_dynamic_name("libc.so.6"));
  EXPECT_FALSE(own->has_dynamic_name("libc.so"));
}

TEST(ElfFile, SaysWhatIsNone) {
  EXPECT_EQ(read_elf_file("/nowhere").error().code, ENOENT);
  EXPECT_EQ(read_elf_file("/dev/null").error().code, ENOEXEC);
  EXPECT_EQ(read_elf_file("/proc/self/cmdline").error().code, ENOEXEC);
  EXPECT_EQ(read_elf_file("/").error().code, ENOEXEC);
}

// The parser trusts neither offsets nor lengths in a file.
TEST(ElfFile, AnythingAtAllIsReadWithinBounds) {
  std::ifstream own("/proc/self/exe", std::ios::binary);
  std::string head(16 << 10, '\0');
  own.read(head.data(), static_cast<std::streamsize>(head.size()));
  const std::string path = testing::TempDir() + "elf_file_test_any";
  std::mt19937_64 random(test::seed());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = head.substr(0, random() % 8 == 0 ? random() % head.size() : head.size());
    for (size_t change = random() % 64; change > 0 && bytes.size() > 4; --change) {
      bytes[4 + random() % std::min<size_t>(bytes.size() - 4, 2048)] = static_cast<char>(random());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    if (const auto file = read_elf_file(path)) {
      EXPECT_LE(file->needed.size(), 1024u);
      EXPECT_LE(file->needed_versions.size(), 1024u);
      EXPECT_LE(file->defined_versions.size(), 1024u);
    }
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace verbena::commands::doctor
