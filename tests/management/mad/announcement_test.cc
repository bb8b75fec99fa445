// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "management/mad/agent_messages.h"
#include "management/mad/example_subnet.h"

namespace verbena::mad {
namespace {

TEST(Announcement, ArrivesAsItWasSaid) {
  Announcement said{adapter(kOwnGuid, "here rxe_eth0"), true};
  said.adapter.up = false;
  said.adapter.path_mtu = 5;
  said.adapter.network = {kIpv6Network, 77};
  EXPECT_EQ(decode_announcement(encode(said)), said);
}

TEST(Announcement, IsCutToWhatADescriptionMayHave) {
  const auto heard = decode_announcement(encode({adapter(kOwnGuid, std::string(100, 'x')), false}));
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->adapter.description, std::string(kMaxDescriptionBytes, 'x'));
}

TEST(Announcement, NeedNotTellOfANetwork) {
  Mad mad = encode({adapter(kOwnGuid), false});
  std::fill(mad.at(120), mad.at(136), std::byte{});  // as from older agents, which do not fill in these bytes
  EXPECT_EQ(decode_announcement(mad)->adapter.network, Network{});
  mad.set_u8(120, kIpv4Network);
  EXPECT_EQ(decode_announcement(mad)->adapter.network, Network{});
}

// The name is printed to terminals.
TEST(Announcement, MayNotCarryControlCharacters) {
  EXPECT_FALSE(decode_announcement(encode({adapter(kOwnGuid, "a\033[2J"), false})).has_value());
  EXPECT_FALSE(decode_announcement(encode({adapter(kOwnGuid, "a\xc2\x9b"), false})).has_value());
}

TEST(Announcement, IsRefusedWhereItSaysWhatCannotBe) {
  const Mad good = encode({adapter(kOwnGuid), false});
  ASSERT_TRUE(decode_announcement(good).has_value());
  const auto refuses = [&](auto change) {
    Mad mad = good;
    change(mad);
    return !decode_announcement(mad).has_value();
  };
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set(48, uint64_t{0}); }));  // the GUID
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set_u8(42, 0); }));         // the path MTU
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set_u8(42, 6); }));         //
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set_u8(40, 2); }));         // another format
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set_u8(kOuiAt, 0); }));     // a different vendor's class
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set_u8(kMethodAt, 1); }));  //
  EXPECT_TRUE(refuses([](Mad& mad) { mad.set_u8(kClassVersionAt, 2); }));
}

}  // namespace
}  // namespace verbena::mad
