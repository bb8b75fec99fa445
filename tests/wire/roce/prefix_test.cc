// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/prefix.h"

#include <gtest/gtest.h>

namespace verbena::roce {
namespace {

Prefix prefix(std::string_view text) {
  return parse_prefix(text).value();
}

bool contains(std::string_view network, std::string_view address) {
  return prefix(network).contains(prefix(address).network);
}

TEST(Prefix, HasTheAddressesOfItsNetworkAndNoOthers) {
  EXPECT_TRUE(contains("192.0.2.0/24", "192.0.2.255"));
  EXPECT_FALSE(contains("192.0.2.0/24", "192.0.3.0"));
  EXPECT_TRUE(contains("192.0.2.128/25", "192.0.2.129"));
  EXPECT_FALSE(contains("192.0.2.128/25", "192.0.2.127"));
  EXPECT_TRUE(contains("fd00::/8", "fdff:1::2"));
  EXPECT_FALSE(contains("fd00::/8", "fe00::"));
  EXPECT_TRUE(contains("2001:db8::1", "2001:db8::1"));
  EXPECT_FALSE(contains("2001:db8::1", "2001:db8::2"));
}

TEST(Prefix, OfAllAddressesHasThoseOfItsKindOfIp) {
  EXPECT_TRUE(contains("0.0.0.0/0", "203.0.113.9"));
  EXPECT_FALSE(contains("0.0.0.0/0", "fd00::1"));
  EXPECT_TRUE(contains("::/0", "fd00::1"));
  EXPECT_FALSE(contains("::/0", "203.0.113.9"));
}

TEST(Prefix, LeavesOutWhatIsNotTheNetworks) {
  EXPECT_EQ(prefix("192.0.2.77/24"), prefix("192.0.2.0/24"));
  EXPECT_EQ(prefix("2001:db8::77/32"), prefix("2001:db8::/32"));
}

TEST(Prefix, IsReadInEitherFormOfAnIpv4Address) {
  EXPECT_EQ(prefix("::ffff:192.0.2.0/120"), prefix("192.0.2.0/24"));
}

TEST(Prefix, IsWrittenAsItIsRead) {
  for (const char* text :
       {"192.0.2.0/24", "0.0.0.0/0", "10.1.2.3/32", "fd00::/8", "::/0", "2001:db8::1/128"}) {
    EXPECT_EQ(text_of(prefix(text)), text);
  }
}

TEST(Prefix, RefusesWhatIsNone) {
  for (const char* text :
       {"", "/", "192.0.2.0/", "192.0.2.0/33", "192.0.2/24", "192.0.2.0/24 ", "192.0.2.0/-1", "192.0.2.0/1x",
        "fd00::/129", "fd00::/300", "::ffff:192.0.2.0/24", "eth0", "any"}) {
    EXPECT_FALSE(parse_prefix(text)) << text;
  }
}

}  // namespace
}  // namespace verbena::roce
