// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "wire/ethernet/frames.h"
#include "wire/ethernet/offloads.h"

namespace verbena::ethernet {
namespace {

using testing::Frame;
using testing::FrameBuilder;

std::vector<Frame> cut(const Frame& frame, uint32_t payload_bytes) {
  const Segmentation segments(frame, payload_bytes);
  std::vector<Frame> all;
  for (uint32_t k = 0; k < segments.count(); ++k) {
    Frame segment(segments.segment_bytes());
    segment.resize(segments.segment(k, segment.data()));
    all.push_back(segment);
  }
  return all;
}

void expect_whole(const std::vector<Frame>& segments, const Frame& frame, size_t header_bytes) {
  Frame payload;
  for (const Frame& segment : segments) {
    EXPECT_TRUE(checksums_good(segment, *parse_headers(segment)));
    payload.insert(payload.end(), segment.begin() + static_cast<ptrdiff_t>(header_bytes), segment.end());
  }
  EXPECT_EQ(payload, Frame(frame.begin() + static_cast<ptrdiff_t>(header_bytes), frame.end()));
}

TEST(Segmentation, CutsTcpOverIpv4) {
  const Frame frame =
      FrameBuilder().addresses().ipv4(6, 20 + 250).tcp(250, 0x99).build();  // CWR, PSH, ACK, FIN
  const auto segments = cut(frame, 100);
  ASSERT_EQ(segments.size(), 3u);
  expect_whole(segments, frame, 54);
  const int flags[] = {0x90, 0x10, 0x19};
  for (uint32_t k = 0; k < 3; ++k) {
    const Frame& segment = segments[k];
    EXPECT_EQ(load_be<uint16_t>(segment.data() + 16), segment.size() - 14) << "total length";
    EXPECT_EQ(load_be<uint16_t>(segment.data() + 18), 0x1234 + k) << "identification";
    EXPECT_EQ(load_be<uint32_t>(segment.data() + 38), 0x01020304 + 100 * k) << "sequence number";
    EXPECT_EQ(static_cast<int>(segment[47]), flags[k]);
  }
}

TEST(Segmentation, CutsTaggedTcpOverIpv6) {
  const Frame frame = FrameBuilder().addresses().vlan(9).ipv6(6, 20 + 101).tcp(101).build();
  const auto segments = cut(frame, 50);
  ASSERT_EQ(segments.size(), 3u);
  expect_whole(segments, frame, 78);
  EXPECT_EQ(load_be<uint16_t>(segments[0].data() + 22), 70);
  EXPECT_EQ(load_be<uint16_t>(segments[2].data() + 22), 21);
}

TEST(Segmentation, CutsUdpIntoDatagrams) {
  const Frame frame = testing::udp4(250);
  const auto segments = cut(frame, 100);
  ASSERT_EQ(segments.size(), 3u);
  expect_whole(segments, frame, 42);
  EXPECT_EQ(load_be<uint16_t>(segments[0].data() + 38), 108);
  EXPECT_EQ(load_be<uint16_t>(segments[2].data() + 38), 58);
}

TEST(Segmentation, LeavesFramesThatCannotBeCutUnchanged) {
  EXPECT_EQ(Segmentation(testing::tcp4(200), 0).count(), 1u);
  EXPECT_EQ(Segmentation(testing::tcp4(200), 200).count(), 1u);
  EXPECT_EQ(Segmentation(testing::tcp4(200), 0xffff).count(), 1u);
  EXPECT_EQ(Segmentation(FrameBuilder().addresses().half(0x88b5).fill(200).build(), 50).count(), 1u);
  EXPECT_EQ(Segmentation(FrameBuilder().addresses().ipv4(1, 200).fill(200).build(), 50).count(), 1u);
  EXPECT_EQ(Segmentation(Frame(5), 50).count(), 1u);
  EXPECT_EQ(Segmentation(FrameBuilder().addresses().ipv4(17, 208, 0x2000).udp(200).build(), 50).count(), 1u);
  Frame frame = testing::tcp4(200);
  frame[46] = std::byte{0xf0};  // a TCP header of 60 bytes, which fits
  EXPECT_GT(Segmentation(frame, 50).count(), 1u);
  frame[46] = std::byte{0x40};  // a length of 16 bytes, less than the minimum of a TCP header
  EXPECT_EQ(Segmentation(frame, 50).count(), 1u);
}

TEST(Segmentation, StaysWithinTheBoundsOfAnyFrame) {
  Random random(17);
  for (int i = 0; i < 20'000; ++i) {
    const Frame frame = testing::random_frame(random);
    const Segmentation segments(frame, static_cast<uint32_t>(random.below(30)));
    if (segments.count() == 1) continue;
    Frame room(segments.segment_bytes());
    for (uint32_t k = 0; k < segments.count(); ++k) ASSERT_LE(segments.segment(k, room.data()), room.size());
  }
}

}  // namespace
}  // namespace verbena::ethernet
