// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "libraries/rsockets/stream_protocol.h"

namespace verbena::rsockets {
namespace {

ConnectData example() {
  ConnectData data;
  data.credits = 384;
  data.iomap_entries = 5;
  data.order = ByteOrder::kLittle;
  data.table = {0x1122334455667788, 0xa1a2a3a4, 2};
  data.buffer = {0x0102030405060708, 0xb1b2b3b4, 0x10000};
  return data;
}

TEST(RsocketConnectData, LiesInTheOrderOfTheWire) {
  const uint8_t expected[] = {1,    2,    0x01, 0x80,                          // version, flags, credits
                              0,    0,    0,    5,                             // reserved, iomap
                              0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,  // table
                              0xa1, 0xa2, 0xa3, 0xa4, 0,    0,    0,    2,     //
                              1,    2,    3,    4,    5,    6,    7,    8,     // buffer
                              0xb1, 0xb2, 0xb3, 0xb4, 0,    1,    0,    0};
  const auto bytes = example().encode();
  static_assert(sizeof expected == ConnectData::kBytes);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), std::begin(expected),
                         [](std::byte a, uint8_t b) { return std::to_integer<uint8_t>(a) == b; }));
}

TEST(RsocketConnectData, BigEndianSpeakerSaysSo) {
  ConnectData data = example();
  data.order = ByteOrder::kBig;
  const auto bytes = data.encode();
  EXPECT_EQ(bytes[1], std::byte{3});
  EXPECT_EQ(ConnectData::decode(bytes)->order, ByteOrder::kBig);
}

TEST(RsocketConnectData, DecodesWhatItEncodes) {
  const auto bytes = example().encode();
  const auto data = ConnectData::decode(bytes);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->credits, 384);
  EXPECT_EQ(data->iomap_entries, 5u);
  EXPECT_EQ(data->table, example().table);
  EXPECT_EQ(data->buffer, example().buffer);
}

TEST(RsocketConnectData, MayBeFollowedByPadding) {
  const auto bytes = example().encode();
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(196);
  EXPECT_TRUE(ConnectData::decode(padded));
}

TEST(RsocketConnectData, RefusesWhatIsTooShort) {
  const auto bytes = example().encode();
  EXPECT_EQ(ConnectData::decode(ConstBytes(bytes).first(39)).error().code, EPROTO);
  EXPECT_EQ(ConnectData::decode({}).error().code, EPROTO);
}

TEST(RsocketConnectData, RefusesAnotherVersion) {
  auto bytes = example().encode();
  bytes[0] = std::byte{2};
  EXPECT_EQ(ConnectData::decode(bytes).error().code, EOPNOTSUPP);
}

TEST(RsocketConnectData, RefusesTableWithoutRoomForTwoBuffers) {
  ConnectData data = example();
  data.table.length = 1;
  EXPECT_EQ(ConnectData::decode(data.encode()).error().code, EPROTO);
}

TEST(RsocketConnectData, PeerWithoutIomapFlagHasNoIomap) {
  auto bytes = example().encode();
  bytes[1] = std::byte{0};
  EXPECT_EQ(ConnectData::decode(bytes)->iomap_entries, 0u);
}

TEST(RsocketIomapScale, SmallSizesAreExact) {
  for (uint32_t size = 0; size <= 128; ++size) EXPECT_EQ(representable_iomap_entries(size), size);
}

TEST(RsocketIomapScale, LargeSizesAreMultiplesOf256) {
  EXPECT_EQ(representable_iomap_entries(256), 256u);
  EXPECT_EQ(representable_iomap_entries(600), 512u);
  EXPECT_EQ(representable_iomap_entries(0xffff), kMaxIomapEntries);
}

}  // namespace
}  // namespace verbena::rsockets
