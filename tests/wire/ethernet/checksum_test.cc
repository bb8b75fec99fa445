// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "wire/ethernet/frames.h"
#include "wire/ethernet/offloads.h"

namespace verbena::ethernet {
namespace {

using testing::Frame;
using testing::FrameBuilder;

bool good(const Frame& frame) {
  return checksums_good(frame, *parse_headers(frame));
}

Frame filled(Frame frame) {
  fill_checksums(frame, *parse_headers(frame));
  return frame;
}

// The checksum as RFC 1071 defines it.
uint16_t plain_sum(ConstBytes bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) sum += static_cast<uint64_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

TEST(Checksum, SumIsThatOfTheRfcForEveryLength) {
  Random random(71);
  Frame bytes;
  for (size_t length = 0; length < 200; ++length) {
    EXPECT_EQ(folded(sum_words(bytes)), plain_sum(bytes)) << length;
    bytes.push_back(static_cast<std::byte>(random.next()));
  }
}

TEST(Checksum, KnownIpv4Header) {
  // From a capture: 192.168.0.1 to 192.168.0.199, checksum b861.
  const Frame header = FrameBuilder()
                           .bytes({0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0})
                           .bytes({0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7})
                           .build();
  EXPECT_EQ(static_cast<uint16_t>(~folded(sum_words(header))), 0xb861);
}

TEST(Checksum, IsGoodAfterItIsFilledIn) {
  for (const Frame& frame :
       {testing::udp4(), testing::tcp4(), testing::tcp4(33), testing::udp6(), testing::tcp6(7),
        FrameBuilder().addresses().vlan(3).ipv4(6, 25, 0, 4).tcp(5).build()}) {
    EXPECT_FALSE(good(frame) && frame != filled(frame));
    EXPECT_TRUE(good(filled(frame)));
  }
}

TEST(Checksum, IsBadAfterAnyBitChanges) {
  const Frame frame = filled(testing::tcp6(9));
  for (size_t at = 54; at < frame.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Frame changed = frame;
      changed[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(good(changed)) << at << '/' << bit;
    }
  }
}

TEST(Checksum, LeavesPaddingOut) {
  Frame frame = filled(testing::udp4(3));
  frame.resize(60, std::byte{0x77});
  EXPECT_TRUE(good(frame));
}

TEST(Checksum, MayBeAbsentForUdpOverIpv4Only) {
  Frame frame = filled(testing::udp4());
  store_be<uint16_t>(frame.data() + 40, 0);
  EXPECT_TRUE(good(frame));
  Frame other = filled(testing::udp6());
  store_be<uint16_t>(other.data() + 60, 0);
  EXPECT_FALSE(good(other));
}

TEST(Checksum, IsNotCheckedAgainAboveIp) {
  Frame frame = filled(testing::tcp4());
  frame.back() ^= std::byte{1};
  EXPECT_FALSE(checksums_good(frame, *parse_headers(frame)));
  EXPECT_TRUE(checksums_good(frame, *parse_headers(frame), true));
  frame[30] ^= std::byte{1};  // the IP header is still checked
  EXPECT_FALSE(checksums_good(frame, *parse_headers(frame), true));
}

TEST(Checksum, OfTransportIsNotFilledInForAFragment) {
  const Frame frame = FrameBuilder().addresses().ipv4(17, 28, 0x2000).udp(20).build();
  const Frame done = filled(frame);
  EXPECT_EQ(load_be<uint16_t>(done.data() + 40), 0);
  EXPECT_NE(load_be<uint16_t>(done.data() + 24), 0);
}

TEST(Checksum, IsNeverGoodWithoutIp) {
  EXPECT_FALSE(good(FrameBuilder().addresses().half(0x88b5).fill(50).build()));
}

TEST(Checksum, CompletesWhatTheKernelLeft) {
  Frame frame = filled(testing::tcp4(31));
  const Frame wanted = frame;
  // The kernel has filled in the pseudo header's sum.
  uint64_t pseudo = 6 + 20 + 31;
  pseudo = sum_words({frame.data() + 26, 8}, pseudo);
  store_be<uint16_t>(frame.data() + 50, folded(pseudo));
  EXPECT_TRUE(complete_checksum(frame, 34, 16));
  EXPECT_EQ(frame, wanted);
}

TEST(Checksum, CompletesNothingOutsideTheFrame) {
  Frame frame = testing::tcp4(0);
  const auto length = static_cast<uint32_t>(frame.size());
  const Frame before = frame;
  EXPECT_FALSE(complete_checksum(frame, length, 0));
  EXPECT_FALSE(complete_checksum(frame, length - 1, 0));
  EXPECT_FALSE(complete_checksum(frame, 34, length - 34 - 1));
  EXPECT_FALSE(complete_checksum(frame, 0xffff, 0xffff));
  EXPECT_FALSE(complete_checksum(frame, 0, 0xffffffff));
  EXPECT_EQ(frame, before);
  EXPECT_TRUE(complete_checksum(frame, 34, length - 34 - 2));
}

TEST(Checksum, SurvivesAnyBytes) {
  Random random(5);
  for (int i = 0; i < 20'000; ++i) {
    Frame frame = testing::random_frame(random);
    const auto headers = parse_headers(frame);
    if (!headers) continue;
    fill_checksums(frame, *headers);
    checksums_good(frame, *headers);
  }
}

}  // namespace
}  // namespace verbena::ethernet
