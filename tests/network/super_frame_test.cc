// SPDX-License-Identifier: Apache-2.0
#include "network/super_frame.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/seed.h"
#include "network/super_frames.h"
#include "wire/ethernet/offloads.h"

namespace verbena::network {
namespace {

using ethernet::testing::FrameBuilder;
using testing::Frame;
using testing::super_frame;

constexpr uint16_t kSegment = 100;

// Returns the frames that a device sends for a frame that it is given.
std::vector<Frame> on_the_wire(const Offload& offload, const Frame& frame) {
  const ethernet::Segmentation segments(frame, offload.segmentation == 0 ? 0 : offload.segment_bytes);
  if (segments.count() == 1) {
    Frame whole = frame;
    if (offload.leaves_checksum()) {
      ethernet::complete_checksum(whole, offload.checksum_start, offload.checksum_offset);
    }
    return {whole};
  }
  std::vector<Frame> all;
  for (uint32_t k = 0; k < segments.count(); ++k) {
    Frame segment(segments.segment_bytes());
    segment.resize(segments.segment(k, segment.data()));
    all.push_back(segment);
  }
  return all;
}

std::vector<Frame> on_the_wire(const SuperFrame::Run& run) {
  Frame frame(run.headers().begin(), run.headers().end());
  frame.insert(frame.end(), run.payload.begin(), run.payload.end());
  return on_the_wire(run.offload, frame);
}

std::vector<Frame> frames_with(uint32_t payload) {
  return {FrameBuilder().addresses().ipv4(6, 20 + payload).tcp(payload, 0x99).build(),  // CWR, PSH, ACK, FIN
          ethernet::testing::tcp6(payload), ethernet::testing::udp4(payload),
          ethernet::testing::udp6(payload)};
}

TEST(SuperFrame, KnowsItsSegments) {
  for (const Frame& frame : frames_with(250)) {
    const SuperFrame super = super_frame(frame, kSegment);
    ASSERT_EQ(super.segments(), 3u);
    const auto headers = static_cast<uint32_t>(frame.size()) - 250;
    EXPECT_EQ(super.segment_bytes(0), headers + 100);
    EXPECT_EQ(super.segment_bytes(2), headers + 50);
  }
}

TEST(SuperFrame, AnyRunsOfItAreTheSegmentsOfTheWhole) {
  Random random(test::seed());
  for (int round = 0; round < 2000; ++round) {
    const auto payload = static_cast<uint32_t>(kSegment + 1 + random.below(1500));
    const Frame frame = frames_with(payload)[random.below(4)];
    const SuperFrame super = super_frame(frame, kSegment);
    Offload whole;
    whole.segmentation = Offload::kUdp;
    whole.segment_bytes = kSegment;

    std::vector<Frame> segments;
    for (uint32_t first = 0; first < super.segments();) {
      const auto count = static_cast<uint32_t>(1 + random.below(super.segments() - first));
      const auto run = on_the_wire(super.run(first, count, false));
      ASSERT_EQ(run.size(), count);
      segments.insert(segments.end(), run.begin(), run.end());
      first += count;
    }
    ASSERT_EQ(segments, on_the_wire(whole, frame));
    for (const Frame& segment : segments) {
      ASSERT_TRUE(ethernet::checksums_good(segment, *ethernet::parse_headers(segment)));
    }
  }
}

TEST(SuperFrame, WhatIsNotCutGoesOnAsItCame) {
  const Frame frames[] = {FrameBuilder().addresses().half(0x0806).fill(28).build(), Frame(9),
                          FrameBuilder().addresses().ipv4(1, 200).fill(200).build()};
  for (const Frame& frame : frames) {
    auto data = std::make_unique<std::byte[]>(frame.size());
    std::ranges::copy(frame, data.get());
    const SuperFrame super({}, std::move(data), static_cast<uint32_t>(frame.size()));
    EXPECT_EQ(super.segments(), 1u);
    EXPECT_EQ(super.segment_bytes(0), frame.size());
    EXPECT_EQ(on_the_wire(super.run(0, 1, false)), std::vector<Frame>(1, frame));
  }
}

TEST(SuperFrame, ANonsensicalOffloadIsNotCut) {
  Random random(test::seed());
  for (int round = 0; round < 20000; ++round) {
    const Frame frame = ethernet::testing::random_frame(random);
    auto data = std::make_unique<std::byte[]>(frame.size());
    std::ranges::copy(frame, data.get());
    Offload offload;
    offload.flags = static_cast<uint8_t>(random.below(2));
    offload.segmentation = static_cast<uint8_t>(random.below(6));
    offload.segment_bytes = static_cast<uint16_t>(random.below(random.one_in(2) ? 20 : 65536));
    offload.checksum_start = static_cast<uint16_t>(random.below(80));
    offload.checksum_offset = static_cast<uint16_t>(random.below(random.one_in(2) ? 20 : 65536));
    const SuperFrame super(offload, std::move(data), static_cast<uint32_t>(frame.size()));
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < super.segments(); ++k) {
      const SuperFrame::Run run = super.run(k, 1, false);
      ASSERT_EQ(run.headers().size() + run.payload.size(), super.segment_bytes(k));
      bytes += run.payload.size();
    }
    ASSERT_LE(bytes, frame.size());
  }
}

TEST(SuperFrame, MarksWhatIsEcnCapableAndKeepsItsChecksum) {
  for (const Frame& frame : frames_with(250)) {
    for (const Frame& segment : on_the_wire(super_frame(frame, kSegment).run(0, 3, true))) {
      const auto headers = *ethernet::parse_headers(segment);
      EXPECT_EQ(headers.key.traffic_class, 0x2f);
      EXPECT_TRUE(ethernet::checksums_good(segment, headers));
    }
  }
}

TEST(SuperFrame, LeavesUnmarkedWhatIsNotEcnCapable) {
  Frame frame = ethernet::testing::udp4(50);
  frame[15] = std::byte{0x2c};
  const auto wire = on_the_wire(super_frame(frame, kSegment).run(0, 1, true));
  EXPECT_EQ(ethernet::parse_headers(wire[0])->key.traffic_class, 0x2c);
}

// An IPv6 header has no checksum. Flipped bits of fields outside the pseudo header do no harm.
TEST(SuperFrame, OneFlippedBitIsFoundByAChecksum) {
  Random random(test::seed());
  for (const Frame& frame : frames_with(250)) {
    const SuperFrame super = super_frame(frame, kSegment);
    std::set<std::vector<std::byte>> kinds;
    for (int round = 0; round < 500; ++round) {
      const auto k = static_cast<uint32_t>(random.below(3));
      const Frame before = on_the_wire(super.run(k, 1, false))[0];
      const Frame after = super.damaged(k, false, random.next());
      ASSERT_EQ(after.size(), before.size());
      int bits = 0;
      size_t where = 0;
      for (size_t i = 0; i < after.size(); ++i) {
        bits += std::popcount(std::to_integer<uint8_t>(after[i] ^ before[i]));
        if (after[i] != before[i]) where = i;
      }
      ASSERT_EQ(bits, 1);
      ASSERT_GE(where, ethernet::kHeaderBytes);
      kinds.insert(after);
      const auto headers = *ethernet::parse_headers(after);
      const bool covered = before[12] == std::byte{8} || where >= ethernet::kHeaderBytes + 8;
      ASSERT_TRUE(!covered || !ethernet::checksums_good(after, headers)) << where;
    }
    EXPECT_GT(kinds.size(), 300u);
  }
}

}  // namespace
}  // namespace verbena::network
