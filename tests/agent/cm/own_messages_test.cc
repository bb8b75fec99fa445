// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "agent/cm/early_messages.h"

namespace verbena::agent {
namespace {

constexpr uint64_t kSecret = 0x8f14e45fceea167a;
using Message = std::array<std::byte, 256>;

Message message(uint32_t number) {
  Message result{};
  store_be(&result[20], number);
  return result;
}

TEST(OwnMessages, AreHeardOnceEach) {
  OwnMessages own(kSecret);
  EXPECT_FALSE(own.heard(message(1)));
  own.said(message(1));
  own.said(message(1));  // a repetition, because no answer came
  EXPECT_FALSE(own.heard(message(2)));
  EXPECT_TRUE(own.heard(message(1)));
  EXPECT_TRUE(own.heard(message(1)));
  EXPECT_FALSE(own.heard(message(1)));
}

TEST(OwnMessages, DifferInEveryBit) {
  OwnMessages own(kSecret);
  own.said(message(1));
  for (size_t at = 0; at < 256; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Message forged = message(1);
      forged[at] ^= std::byte(1 << bit);
      EXPECT_FALSE(own.heard(forged)) << at;
    }
  }
  EXPECT_TRUE(own.heard(message(1)));
}

// Many programs connect at the same moment. Messages to other hosts are in the table as well.
TEST(OwnMessages, FindRoomByTheThousand) {
  OwnMessages own(kSecret);
  for (uint32_t i = 0; i < 100000; ++i) own.said(message(i));
  uint32_t heard = 0;
  for (uint32_t i = 95000; i < 100000; ++i) heard += own.heard(message(i));
  EXPECT_GT(heard, 4995u);
}

constexpr TimePoint kStart{};

// A sender's address.
roce::Address sender(uint8_t number) {
  const uint8_t bytes[4] = {10, 9, 0, number};
  return roce::Address::from_ipv4(bytes);
}

std::optional<EarlyMessages::Message> keep(EarlyMessages& early, uint8_t from, uint32_t number) {
  cm::Arrival arrival;
  arrival.path.source = sender(from);
  return early.keep(message(number), arrival, kStart, kStart + EarlyMessages::kPatience);
}

TEST(EarlyMessages, SenderOfManyLeavesOthersTheirPlaces) {
  EarlyMessages early;
  for (uint32_t number = 0; number < EarlyMessages::kMax; ++number) {
    ASSERT_TRUE(early.has_room(sender(1), Duration(0)));
    EXPECT_FALSE(keep(early, 1, number));
  }
  EXPECT_FALSE(early.has_room(sender(1), Duration(0)));
  ASSERT_TRUE(early.has_room(sender(2), Duration(0)));
  EXPECT_FALSE(keep(early, 1, 5)) << "kept already";
  const auto displaced = keep(early, 2, 1000);
  ASSERT_TRUE(displaced);
  EXPECT_EQ(displaced->arrival.path.source, sender(1));
  EXPECT_TRUE(std::ranges::equal(displaced->mad.bytes, message(0))) << "the oldest";
  size_t left = 0;
  while (early.take(early.last_number(), [](const auto&) { return true; })) ++left;
  EXPECT_EQ(left, EarlyMessages::kMax);
}

TEST(EarlyMessages, SendersOfOneEachGiveWayToANewOne) {
  EarlyMessages early;
  for (uint32_t number = 0; number < EarlyMessages::kMax; ++number)
    EXPECT_FALSE(keep(early, static_cast<uint8_t>(number), number));
  EXPECT_FALSE(early.has_room(sender(3), Duration(0))) << "no other has more";
  ASSERT_TRUE(early.has_room(sender(200), Duration(0)));
  const auto displaced = keep(early, 200, 1000);
  ASSERT_TRUE(displaced);
  EXPECT_EQ(displaced->arrival.path.source, sender(0));
}

// One that is kept again while a listener's user goes through them must not come again.
TEST(EarlyMessages, AreTakenByWhatTheyWaitForUpToANumber) {
  EarlyMessages early;
  cm::Arrival arrival;
  arrival.path.source = sender(1);
  for (const uint64_t port : {7000, 7001, 7000}) {
    cm::SidrReq request;
    request.request_id = static_cast<uint32_t>(early.last_number() + 1);
    request.service_id = port;
    early.keep(cm::encode(request, 1).bytes, arrival, kStart, kStart + EarlyMessages::kPatience);
  }
  keep(early, 2, 1);
  const auto is_for = [](const EarlyMessages::Message& message) { return message.service_id == 7000; };
  const auto is_none = [](const EarlyMessages::Message& message) { return !message.service_id; };
  EXPECT_EQ(early.take(2, is_for)->number, 1u);
  EXPECT_FALSE(early.take(2, is_for));
  EXPECT_EQ(early.take(4, is_for)->number, 3u);
  EXPECT_EQ(early.take(4, is_none)->arrival.path.source, sender(2));
  EXPECT_TRUE(early.take(4, [](const auto&) { return true; }));
  EXPECT_EQ(early.deadline(), kNever);
}

TEST(EarlyMessages, PlacesOfASenderAreFreeAgainWhenItsMessagesAreTaken) {
  EarlyMessages early;
  for (uint32_t number = 0; number < EarlyMessages::kMax; ++number)
    keep(early, number % 2 == 0 ? 1 : 2, number);
  const auto is_first = [](const EarlyMessages::Message& m) { return m.arrival.path.source == sender(1); };
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(early.take(early.last_number(), is_first));
  EXPECT_FALSE(keep(early, 3, 1000));
  EXPECT_FALSE(keep(early, 3, 1001));
  EXPECT_TRUE(early.has_room(sender(1), Duration(0))) << "sender 2 has more";
  EXPECT_FALSE(early.has_room(sender(2), Duration(0)));
}

TEST(EarlyMessages, ThatHaveWaitedUseHalfOfThePlaces) {
  EarlyMessages early;
  for (uint32_t number = 0; number < EarlyMessages::kMax / 2; ++number) {
    EXPECT_TRUE(early.has_room(sender(2), EarlyMessages::kPatience));
    keep(early, 1, number);
  }
  EXPECT_FALSE(early.has_room(sender(2), EarlyMessages::kPatience));
}

}  // namespace
}  // namespace verbena::agent
