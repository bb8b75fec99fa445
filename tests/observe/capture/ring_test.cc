// SPDX-License-Identifier: Apache-2.0
// Records through a ring: they come out as they went in, and those without room are counted.
#include <cerrno>

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "observe/capture/ring_memory.h"
#include "observe/capture/ring_reader.h"

namespace verbena::capture {
namespace {

using roce::Operation;
using testing::ElementsAreArray;

class Ring : public RingTest {};

TEST_F(Ring, ARecordArrivesWithTimePathHeadersAndPayload) {
  path.traffic_class = 8;
  path.hop_limit = 33;
  headers.destination = roce::Qpn(0x1234);
  headers.psn = roce::Psn(77);
  headers.address = 0x1122334455667788;
  headers.rkey = 9;
  headers.dma_length = 5;
  put(Operation::kWriteOnly, 5, 1, 1234);
  const Record* const record = reader->front();
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->time, TimePoint(Duration(1234)));
  EXPECT_EQ(record->path, path);
  EXPECT_EQ(record->headers.destination, headers.destination);
  EXPECT_EQ(record->headers.psn, headers.psn);
  EXPECT_EQ(record->headers.address, headers.address);
  EXPECT_THAT(record->payload, ElementsAreArray(payload));
  EXPECT_EQ(record->count, 1u);
  EXPECT_FALSE(record->by_initiator);
  EXPECT_EQ(reader->front(), record) << "until it is popped";
  reader->pop();
  EXPECT_EQ(reader->front(), nullptr);
  EXPECT_FALSE(reader->is_broken());
}

TEST_F(Ring, EveryOpcodeFitsARecord) {
  uint32_t seen = 0;
  for (uint32_t opcode = 0; opcode < 256; ++opcode) {
    if (!roce::kOpcodes[opcode].exists()) continue;
    headers.opcode = static_cast<uint8_t>(opcode);
    headers.pad = 0;
    writer->put({.time = {}, .path = path, .headers = headers, .payload = {}, .payload_bytes = 0});
    const Record* const record = reader->front();
    ASSERT_NE(record, nullptr) << opcode;
    EXPECT_EQ(record->headers.opcode, opcode);
    reader->pop();
    ++seen;
  }
  EXPECT_GT(seen, 50u);
}

// Each record has its own payload, also after the ring wraps.
TEST_F(Ring, RecordsComeInOrderRoundAndRound) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; bytes < 5ull * kRingBytes; ++i) {
    headers.psn = roce::Psn(i);
    put(Operation::kSendOnly, i % 4097);
    const Record* const record = reader->front();
    ASSERT_NE(record, nullptr);
    ASSERT_EQ(record->headers.psn, headers.psn);
    ASSERT_THAT(record->payload, ElementsAreArray(payload));
    bytes += payload.size();
    reader->pop();
  }
  EXPECT_EQ(reader->left_out(), 0u);
}

TEST_F(Ring, WhatFindsNoRoomIsLeftOutAndCounted) {
  uint32_t put_in = 0;
  while (reader->left_out() == 0) {
    headers.psn = roce::Psn(put_in++);
    put(Operation::kSendFirst, 8192, 2);
  }
  EXPECT_EQ(reader->left_out(), 2u) << "each of the joined packets counts";
  for (uint32_t i = 0; i + 1 < put_in; ++i) {
    const Record* const record = reader->front();
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->headers.psn, roce::Psn(i));
    reader->pop();
  }
  EXPECT_EQ(reader->front(), nullptr);
  put(Operation::kSendOnly, 8);
  EXPECT_NE(reader->front(), nullptr) << "there is room again";
  EXPECT_EQ(reader->left_out(), 2u);
}

TEST_F(Ring, APayloadThatIsGoneLeavesTheHeaders) {
  const long page = ::sysconf(_SC_PAGESIZE);
  void* const gone =
      ::mmap(nullptr, static_cast<size_t>(page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  headers.opcode = roce::make_opcode(roce::Service::kRc, Operation::kSendOnly);
  const ConstBytes piece(static_cast<std::byte*>(gone), 100);
  writer->put({.time = {}, .path = path, .headers = headers, .payload = {&piece, 1}, .payload_bytes = 100});
  const Record* const record = reader->front();
  ASSERT_NE(record, nullptr);
  EXPECT_TRUE(record->payload.empty());
  EXPECT_EQ(record->payload_bytes, 100u);
  ::munmap(gone, static_cast<size_t>(page));
}

TEST_F(Ring, TheSizeOfItsFileIsSealed) {
  EXPECT_EQ(::ftruncate(file->get(), 0), -1);
  EXPECT_EQ(::ftruncate(file->get(), 2 * sizeof(RingMemory)), -1);
  const UniqueFd other(::memfd_create("not a ring", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(other.get(), sizeof(RingMemory)), 0);
  const auto mapped = RingMapping::map(other.get());
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, EPROTO);
}

class SnappedRing : public RingTest {
 protected:
  SnappedRing() : RingTest(100) {}
};

TEST_F(SnappedRing, OfEachPacketTheFirstBytesAreKept) {
  put(Operation::kSendOnly, 2 * 256 + 50, 3);
  const Record* const record = reader->front();
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->payload_bytes, 562u);
  EXPECT_EQ(record->path_mtu, 256u);
  std::vector<std::byte> kept(payload.begin(), payload.begin() + 100);
  kept.insert(kept.end(), payload.begin() + 256, payload.begin() + 356);
  kept.insert(kept.end(), payload.begin() + 512, payload.end());
  EXPECT_THAT(record->payload, ElementsAreArray(kept));
}

TEST(PathMtu, IsToldByThePayloadAndTheCount) {
  for (const uint32_t mtu : {256u, 512u, 1024u, 2048u, 4096u}) {
    for (uint32_t count = 2; count * mtu <= kMaxRecordPayload; ++count) {
      for (const uint32_t last : {1u, mtu / 2, mtu - 1, mtu}) {
        EXPECT_EQ(path_mtu_of((count - 1) * mtu + last, count), mtu)
            << count << " packets, the last " << last;
      }
    }
  }
  EXPECT_EQ(path_mtu_of(4097, 1), 0u);
  EXPECT_EQ(path_mtu_of(256, 2), 0u) << "one would have done";
  EXPECT_EQ(path_mtu_of(8, 0), 0u);
}

}  // namespace
}  // namespace verbena::capture
