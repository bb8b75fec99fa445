// SPDX-License-Identifier: Apache-2.0
// Packets that travel as one over shared memory are captured one by one, as they would have been on a wire.
#include <vector>

#include <gmock/gmock.h>

#include "observe/capture/frame_builder.h"
#include "observe/capture/ring_memory.h"

namespace verbena::capture {
namespace {

using roce::Operation;
using testing::ElementsAre;
using testing::ElementsAreArray;

class WirePackets : public RingTest {
 protected:
  std::vector<WirePacket> split(Operation operation, uint32_t bytes, uint32_t count) {
    if (reader->front() != nullptr) reader->pop();
    put(operation, bytes, count);
    std::vector<WirePacket> packets;
    const Record* const record = reader->front();
    EXPECT_NE(record, nullptr);
    if (record == nullptr) return packets;
    for (uint32_t i = 0; i < record->count; ++i) packets.push_back(packet_at(*record, i));
    return packets;
  }
  std::vector<Operation> operations(Operation operation, uint32_t count) {
    std::vector<Operation> found;
    for (const WirePacket& packet : split(operation, count * 256, count)) {
      found.push_back(packet.headers.operation());
      EXPECT_EQ(packet.headers.service(), roce::Service::kRc);
    }
    return found;
  }
};

TEST_F(WirePackets, OnePacketIsAsItWas) {
  headers.ack_request = true;
  const auto packets = split(Operation::kSendOnlyImmediate, 7, 1);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].headers.operation(), Operation::kSendOnlyImmediate);
  EXPECT_TRUE(packets[0].headers.ack_request);
  EXPECT_EQ(packets[0].headers.pad, 1);
  EXPECT_THAT(packets[0].payload, ElementsAreArray(payload));
}

TEST_F(WirePackets, PsnsFollowEachOtherAndWrap) {
  headers.psn = roce::Psn(0xfffffe);
  std::vector<uint32_t> psns;
  for (const WirePacket& packet : split(Operation::kSendMiddle, 4 * 1024, 4)) {
    psns.push_back(packet.headers.psn.value());
  }
  EXPECT_THAT(psns, ElementsAre(0xfffffe, 0xffffff, 0, 1));
}

TEST_F(WirePackets, AllButTheLastAreFull) {
  std::vector<uint32_t> sizes;
  std::vector<std::byte> all;
  const auto packets = split(Operation::kSendOnly, 2 * 2048 + 5, 3);
  for (const WirePacket& packet : packets) {
    sizes.push_back(packet.payload_bytes);
    all.insert(all.end(), packet.payload.begin(), packet.payload.end());
  }
  EXPECT_THAT(sizes, ElementsAre(2048, 2048, 5));
  EXPECT_THAT(all, ElementsAreArray(payload));
  EXPECT_EQ(packets[0].headers.pad, 0);
  EXPECT_EQ(packets[2].headers.pad, 3);
}

TEST_F(WirePackets, OnlyTheLastAsksForAnAcknowledgementAndSolicits) {
  headers.ack_request = true;
  headers.solicited = true;
  const auto packets = split(Operation::kSendLast, 3 * 256, 3);
  ASSERT_EQ(packets.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packets[i].headers.ack_request, i == 2);
    EXPECT_EQ(packets[i].headers.solicited, i == 2);
  }
}

TEST_F(WirePackets, TheOpcodeSaysWhetherTheFirstBeginsAndTheLastEndsTheMessage) {
  using enum Operation;
  EXPECT_THAT(operations(kSendOnly, 3), ElementsAre(kSendFirst, kSendMiddle, kSendLast));
  EXPECT_THAT(operations(kSendFirst, 3), ElementsAre(kSendFirst, kSendMiddle, kSendMiddle));
  EXPECT_THAT(operations(kSendMiddle, 2), ElementsAre(kSendMiddle, kSendMiddle));
  EXPECT_THAT(operations(kSendLast, 3), ElementsAre(kSendMiddle, kSendMiddle, kSendLast));
  EXPECT_THAT(operations(kSendLastImmediate, 2), ElementsAre(kSendMiddle, kSendLastImmediate));
  EXPECT_THAT(operations(kSendOnlyImmediate, 2), ElementsAre(kSendFirst, kSendLastImmediate));
  EXPECT_THAT(operations(kSendOnlyInvalidate, 2), ElementsAre(kSendFirst, kSendLastInvalidate));
  EXPECT_THAT(operations(kWriteOnly, 3), ElementsAre(kWriteFirst, kWriteMiddle, kWriteLast));
  EXPECT_THAT(operations(kWriteOnlyImmediate, 2), ElementsAre(kWriteFirst, kWriteLastImmediate));
  EXPECT_THAT(operations(kWriteFirst, 2), ElementsAre(kWriteFirst, kWriteMiddle));
  EXPECT_THAT(operations(kReadResponseOnly, 3),
              ElementsAre(kReadResponseFirst, kReadResponseMiddle, kReadResponseLast));
  EXPECT_THAT(operations(kReadResponseLast, 2), ElementsAre(kReadResponseMiddle, kReadResponseLast));
}

TEST_F(WirePackets, WhatIsNeverJoinedIsNoRecordOfSeveral) {
  EXPECT_FALSE(can_be_joined(roce::make_opcode(roce::Service::kRc, Operation::kAcknowledge)));
  EXPECT_FALSE(can_be_joined(roce::make_opcode(roce::Service::kRc, Operation::kReadRequest)));
  EXPECT_FALSE(can_be_joined(roce::make_opcode(roce::Service::kUd, Operation::kSendOnly)));
  EXPECT_TRUE(can_be_joined(roce::make_opcode(roce::Service::kRc, Operation::kSendOnly)));
  put(Operation::kAtomicWrite, 512, 2);
  EXPECT_EQ(reader->front(), nullptr);
  EXPECT_TRUE(reader->is_broken());
}

}  // namespace
}  // namespace verbena::capture
