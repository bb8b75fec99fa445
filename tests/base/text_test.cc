// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <array>

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(Text, IsCutToItsFieldAndMadePrintable) {
  std::array<char, 8> field;
  field.fill('z');
  store_text(field, "abc");
  EXPECT_EQ(load_text(field), "abc");
  EXPECT_EQ(field[7], '\0');
  store_text(field, "0123456789");
  EXPECT_EQ(load_text(field), "0123456");
  field.fill('a');  // without a terminating null
  EXPECT_EQ(load_text(field), "aaaaaaaa");
  store_text(field, "\x1b[31m\n");
  EXPECT_EQ(load_text(field), "?[31m?");
  store_text(field, {});
  EXPECT_EQ(load_text(field), "");
}

// U+009B begins a control sequence that terminals obey, as ESC [ does.
TEST(Text, HasNoControlCharactersOfTheSecondSet) {
  EXPECT_EQ(printable("a\xc2\x9b"
                      "31m"),
            "a??31m");
  EXPECT_EQ(printable("\xc2\x80\xc2\x9f"), "????");
  EXPECT_EQ(printable("\xc2\xa0\xc3\x9f\xe2\x82\xac"), "\xc2\xa0\xc3\x9f\xe2\x82\xac");
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

}  // namespace
}  // namespace verbena
