// SPDX-License-Identifier: Apache-2.0
#include "network/too_large.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "network/super_frames.h"
#include "wire/ethernet/offloads.h"

namespace verbena::network {
namespace {

using testing::Frame;
using testing::super_frame;

TEST(TooLarge, TellsTheSenderOfIpv4) {
  const Frame frame = ethernet::testing::udp4(1400);
  const Frame answer = too_large_answer(super_frame(frame, 1400), 1280);
  const auto headers = ethernet::parse_headers(answer);
  ASSERT_TRUE(headers);
  EXPECT_TRUE(ethernet::checksums_good(answer, *headers));
  EXPECT_EQ(headers->key.protocol, 1);
  EXPECT_TRUE(std::equal(frame.begin(), frame.begin() + 6, answer.begin() + 6)) << "from its destination";
  EXPECT_TRUE(std::equal(frame.begin() + 26, frame.begin() + 30, answer.begin() + 30)) << "to its source";
  const ConstBytes icmp = ConstBytes(answer).subspan(34);
  EXPECT_EQ(load_be<uint16_t>(icmp.data()), 0x0304);
  EXPECT_EQ(load_be<uint32_t>(icmp.data() + 4), 1280u);
  EXPECT_EQ(ethernet::folded(ethernet::sum_words(icmp)), 0xffff);
  EXPECT_TRUE(std::equal(frame.begin() + 14, frame.begin() + 14 + 100, icmp.begin() + 8))
      << "quotes the packet";
  EXPECT_LE(answer.size(), 14u + 576u);
}

TEST(TooLarge, TellsTheSenderOfIpv6OnceForAllSegments) {
  const Frame frame = ethernet::testing::tcp6(3000);
  const Frame answer = too_large_answer(super_frame(frame, 1400), 1280);
  const auto headers = ethernet::parse_headers(answer);
  ASSERT_TRUE(headers);
  EXPECT_EQ(headers->key.protocol, 58);
  EXPECT_EQ(headers->key.destination_ip[15], 5);
  const ConstBytes icmp = ConstBytes(answer).subspan(54);
  EXPECT_EQ(load_be<uint16_t>(icmp.data()), 0x0200);
  EXPECT_EQ(load_be<uint32_t>(icmp.data() + 4), 1280u);
  EXPECT_EQ(load_be<uint16_t>(icmp.data() + 8 + 4), 1420) << "the length of the first segment";
  const uint64_t pseudo = ethernet::sum_words(ConstBytes(answer).subspan(22, 32), icmp.size() + 58);
  EXPECT_EQ(ethernet::folded(ethernet::sum_words(icmp, pseudo)), 0xffff);
}

TEST(TooLarge, KeepsSilentToWhatIsNotForOne) {
  Frame frame = ethernet::testing::udp4(1400);
  frame[0] |= std::byte{1};
  EXPECT_TRUE(too_large_answer(super_frame(frame, 1400), 1280).empty());
}

}  // namespace
}  // namespace verbena::network
