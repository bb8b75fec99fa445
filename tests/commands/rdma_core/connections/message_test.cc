// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commands/rdma_core/connections/rping/session.h"

namespace verbena::rdma_core {
namespace {

TEST(Advertisement, IsSixteenBytesInNetworkOrder) {
  const AdvertisementBytes message = encode({0x0102030405060708, 0x11121314, 0x40});
  EXPECT_EQ(message, (AdvertisementBytes{1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0x40}));
}

TEST(Advertisement, SaysWhatWasEncoded) {
  const auto said = decode(encode({0xfffffffffffffff0, 0xdeadbeef, 0xffffffff}));
  ASSERT_TRUE(said);
  EXPECT_EQ(said->address, 0xfffffffffffffff0);
  EXPECT_EQ(said->key, 0xdeadbeefU);
  EXPECT_EQ(said->bytes, 0xffffffffU);
}

TEST(Advertisement, IsNoneOfAnotherLength) {
  const std::vector<uint8_t> bytes(64, 0xff);
  for (size_t length : {0, 1, 15, 17, 64}) EXPECT_FALSE(decode({bytes.data(), length})) << length;
}

TEST(PingText, EndsAtItsZero) {
  EXPECT_EQ(text_of(std::vector<char>{'a', 'b', 0, 'c'}), "ab");
}

TEST(PingText, IsAllOfABufferThatAStrangerLeftWithoutZero) {
  EXPECT_EQ(text_of(std::vector<char>(5, 'x')), "xxxxx");
  EXPECT_EQ(text_of({}), "");
}

TEST(Ping, HasItsNumberAndLettersAndAZero) {
  std::vector<char> buffer(23, '?');
  write_ping(buffer, 0);
  EXPECT_EQ(text_of(buffer), "rdma-ping-0: ABCDEFGHI");
  write_ping(buffer, 57);
  EXPECT_EQ(text_of(buffer), "rdma-ping-57: zABCDEFG");
  write_ping(buffer, 58);
  EXPECT_EQ(text_of(buffer), "rdma-ping-58: ABCDEFGH");
}

TEST(Ping, OfAnyNumberStaysInTheSmallestBuffer) {
  std::vector<char> buffer(24, '?');
  write_ping({buffer.data(), 23}, 2147483647);
  EXPECT_EQ(text_of(buffer).substr(0, 20), "rdma-ping-2147483647");
  EXPECT_EQ(buffer[22], '\0');
  EXPECT_EQ(buffer[23], '?');
}

}  // namespace
}  // namespace verbena::rdma_core
