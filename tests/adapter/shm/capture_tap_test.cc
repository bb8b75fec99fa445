// SPDX-License-Identifier: Apache-2.0
// What a process does in another's memory by itself, as the packets that it stands for.
#include "adapter/shm/capture_tap.h"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observe/capture/frame_builder.h"
#include "observe/capture/ring_reader.h"

namespace verbena::engine {
namespace {

using capture::Record;
using capture::WirePacket;
using roce::Operation;
using testing::ElementsAreArray;

constexpr TimePoint kAsked = TimePoint(Duration(100));
constexpr TimePoint kAnswered = TimePoint(Duration(200));

class CaptureTapTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = capture::make_ring_file(roce::kMaxPathMtu);
    ASSERT_TRUE(made);
    file = std::move(*made);
    auto mapped = capture::RingMapping::map(file.get());
    ASSERT_TRUE(mapped);
    ring.emplace(std::move(*mapped));
    reader.emplace(ring->memory(), roce::kMaxPathMtu);
    auto opened = CaptureTap::open(file.get());
    ASSERT_TRUE(opened);
    tap = std::move(*opened);
    path.source.bytes[15] = 1;
    path.destination.bytes[15] = 2;
  }
  const transport::Connection connection{roce::Qpn(0x10), roce::Qpn(0x20), roce::Psn(1)};
  transport::PeerRange range(uint32_t length) const {
    return {.connection = &connection,
            .address = 0x1000,
            .rkey = 77,
            .length = length,
            .path = &path,
            .next_psn = roce::Psn(50),
            .path_mtu = 1024};
  }
  std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(i / 3);
    return all;
  }
  struct Seen {
    WirePacket packet;
    std::vector<std::byte> payload;
    roce::Path path;
    roce::Qpn source;
    TimePoint time;
  };
  std::vector<Seen> seen() {
    std::vector<Seen> all;
    for (; const Record* const record = reader->front(); reader->pop()) {
      EXPECT_TRUE(record->by_initiator);
      for (uint32_t i = 0; i < record->count; ++i) {
        const WirePacket packet = packet_at(*record, i);
        all.push_back({packet,
                       {packet.payload.begin(), packet.payload.end()},
                       record->path,
                       record->source,
                       record->time});
      }
    }
    EXPECT_FALSE(reader->is_broken());
    return all;
  }

  UniqueFd file;
  std::optional<capture::RingMapping> ring;
  std::optional<capture::RingReader> reader;
  std::unique_ptr<CaptureTap> tap;
  roce::Path path;
};

// A receipt has no DETH to say it.
TEST_F(CaptureTapTest, AWordOfADatagramsQueuePairIsThatQueuePairs) {
  roce::Headers word;
  word.opcode = roce::kReceiverReportOpcode;
  word.destination = roce::Qpn(0x20);
  word.source = roce::Qpn(0x10);
  tap->sent({path, word, {}, 0}, kAsked);
  const Record* const record = reader->front();
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->source, roce::Qpn(0x10));
  EXPECT_EQ(record->headers.destination, roce::Qpn(0x20));
}

TEST_F(CaptureTapTest, AReadIsARequestAndItsResponses) {
  constexpr uint32_t kOffset = 4096;
  constexpr uint32_t kBytes = 20 * 1024 + 5;
  const auto read = bytes(kBytes);
  // In pieces that are no packets.
  const ConstBytes pieces[] = {ConstBytes(read).first(1), ConstBytes(read).subspan(1, 9000),
                               ConstBytes(read).subspan(9001)};
  tap->have_read(range(kOffset + kBytes), kOffset, kBytes, pieces, kAsked, kAnswered);
  const auto all = seen();
  ASSERT_EQ(all.size(), 1u + 21u);

  const roce::Headers& request = all[0].packet.headers;
  EXPECT_EQ(request.operation(), Operation::kReadRequest);
  EXPECT_EQ(request.address, 0x1000u + kOffset);
  EXPECT_EQ(request.dma_length, kBytes);
  EXPECT_EQ(request.rkey, 77u);
  EXPECT_EQ(request.psn, roce::Psn(50));
  EXPECT_EQ(request.destination, roce::Qpn(0x20));
  EXPECT_EQ(all[0].source, roce::Qpn(0x10));
  EXPECT_EQ(all[0].path, path);
  EXPECT_EQ(all[0].time, kAsked);

  std::vector<std::byte> answered;
  for (uint32_t i = 1; i < all.size(); ++i) {
    const roce::Headers& response = all[i].packet.headers;
    const Operation expected = i == 1                ? Operation::kReadResponseFirst
                               : i + 1 == all.size() ? Operation::kReadResponseLast
                                                     : Operation::kReadResponseMiddle;
    EXPECT_EQ(response.operation(), expected) << i;
    EXPECT_EQ(response.psn, roce::Psn(50 + i - 1));
    EXPECT_EQ(response.destination, roce::Qpn(0x10));
    EXPECT_EQ(all[i].source, roce::Qpn(0x20));
    EXPECT_EQ(all[i].path.source, path.destination);
    EXPECT_EQ(all[i].path.destination, path.source);
    EXPECT_EQ(all[i].time, kAnswered);
    EXPECT_EQ(all[i].packet.payload_bytes, i + 1 == all.size() ? 5u : 1024u);
    answered.insert(answered.end(), all[i].payload.begin(), all[i].payload.end());
  }
  EXPECT_THAT(answered, ElementsAreArray(read));
}

TEST_F(CaptureTapTest, AWriteIsItsPacketsAndAnAcknowledgement) {
  const auto written = bytes(2 * 1024 + 1);
  const ConstBytes piece = written;
  const auto bytes = static_cast<uint32_t>(written.size());
  tap->have_written(range(bytes), 0, bytes, {&piece, 1}, kAsked, kAnswered);
  const auto all = seen();
  ASSERT_EQ(all.size(), 4u);
  const Operation operations[] = {Operation::kWriteFirst, Operation::kWriteMiddle, Operation::kWriteLast};
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].packet.headers.operation(), operations[i]);
    EXPECT_EQ(all[i].packet.headers.psn, roce::Psn(50 + i));
    EXPECT_EQ(all[i].packet.headers.ack_request, i == 2);
  }
  EXPECT_EQ(all[0].packet.headers.dma_length, written.size());
  EXPECT_EQ(all[3].packet.headers.operation(), Operation::kAcknowledge);
  EXPECT_EQ(all[3].packet.headers.psn, roce::Psn(52));
  EXPECT_EQ(all[3].source, roce::Qpn(0x20));
}

TEST_F(CaptureTapTest, ASmallOneIsOnePacketEachWay) {
  const auto data = bytes(8);
  const ConstBytes piece = data;
  tap->have_read(range(8), 0, 8, {&piece, 1}, kAsked, kAnswered);
  tap->have_written(range(8), 0, 8, {&piece, 1}, kAsked, kAnswered);
  std::vector<Operation> operations;
  for (const Seen& each : seen()) operations.push_back(each.packet.headers.operation());
  EXPECT_THAT(operations, ElementsAreArray({Operation::kReadRequest, Operation::kReadResponseOnly,
                                            Operation::kWriteOnly, Operation::kAcknowledge}));
}

}  // namespace
}  // namespace verbena::engine
