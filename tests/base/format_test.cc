// SPDX-License-Identifier: Apache-2.0
#include "base/format.h"

#include <array>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(Format, PutsArgumentsIntoText) {
  const std::string name = "lo";
  EXPECT_EQ(verbena::format("{} {:#x} {:.1f} {}", name, 255U, 2.25, 'c'), "lo 0xff 2.2 c");
  EXPECT_EQ(verbena::format("{:>4}|{:<3}|{:04}", 7, true, -3), "   7|true|-003");
}

TEST(Format, TakesTextsOfEveryKind) {
  const char* const plain = "a";
  EXPECT_EQ(verbena::format("{}{}{}", plain, std::string_view("b"), std::string("c")), "abc");
}

TEST(Format, ShowsAnAddress) {
  EXPECT_EQ(verbena::format("{}", ptr(reinterpret_cast<int*>(0x10))), "0x10");
}

TEST(Format, JoinsARange) {
  EXPECT_EQ(verbena::join(std::vector<std::string>{"a", "b"}, ", "), "a, b");
  EXPECT_EQ(verbena::join(std::array<uint8_t, 3>{1, 0xab, 0}, ":", "{:02x}"), "01:ab:00");
  EXPECT_EQ(verbena::join(std::vector<int>{}, ", "), "");
}

TEST(Format, PrintsToAFile) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  verbena::print(file, "{}-{}", 1, "two");
  std::rewind(file);
  char text[8] = {};
  EXPECT_EQ(std::fread(text, 1, sizeof(text), file), 5U);
  EXPECT_STREQ(text, "1-two");
  std::fclose(file);
}

TEST(Format, ThrowsWhereTheFileTakesNothing) {
  std::FILE* const file = std::fopen("/dev/null", "r");
  ASSERT_NE(file, nullptr);
  EXPECT_THROW(verbena::print(file, "{}", 1), std::system_error);
  std::fclose(file);
}

}  // namespace
}  // namespace verbena
