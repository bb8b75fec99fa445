// SPDX-License-Identifier: Apache-2.0
// The two ends of a capture ring do not trust each other: invalid contents harm only that ring.
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "observe/capture/frame_builder.h"
#include "observe/capture/ring_memory.h"

namespace verbena::capture {
namespace {

using roce::Operation;

class HostileRing : public RingTest {
 protected:
  // Returns the head of the first record.
  RecordHead head() {
    RecordHead head;
    std::memcpy(&head, ring().data, sizeof head);
    return head;
  }
  void set_head(const RecordHead& head) { std::memcpy(ring().data, &head, sizeof head); }
  void expect_broken(const char* what) {
    EXPECT_EQ(reader->front(), nullptr) << what;
    EXPECT_TRUE(reader->is_broken()) << what;
  }
  // Applies `change` to a valid record, and has a new reader read it.
  template <class Change>
  void try_change(const char* what, Change change) {
    SetUp();
    ring().written = 0;
    ring().taken = 0;
    put(Operation::kSendOnly, 100);
    RecordHead changed = head();
    change(changed);
    set_head(changed);
    expect_broken(what);
  }
};

TEST_F(HostileRing, ARecordThatCannotBeBreaksTheRing) {
  try_change("longer than what is there", [](RecordHead& h) { h.bytes += 8; });
  try_change("of no length", [](RecordHead& h) { h.bytes = 0; });
  try_change("shorter than a head", [](RecordHead& h) { h.bytes = 64; });
  try_change("not in units", [](RecordHead& h) { h.bytes -= 4; });
  try_change("of no kind", [](RecordHead& h) { h.kind = static_cast<RecordKind>(7); });
  try_change("headers that are too long", [](RecordHead& h) { h.header_bytes = 255; });
  try_change("headers of another length", [](RecordHead& h) { h.header_bytes = 16; });
  try_change("more kept than there is", [](RecordHead& h) { h.kept_bytes = 101; });
  try_change("less kept than there should be", [](RecordHead& h) { h.kept_bytes = 99; });
  try_change("more payload than fits", [](RecordHead& h) { h.payload_bytes = UINT32_MAX; });
  try_change("no packet", [](RecordHead& h) { h.count = 0; });
  try_change("more packets than the payload has", [](RecordHead& h) { h.count = 3; });
  try_change("addresses of two families", [](RecordHead& h) { h.source_address = {}; });
}

// Otherwise endless skips would keep the reader busy, and records of other rings would wait.
TEST_F(HostileRing, ASkipThatDoesNotFillWhatIsLeftBreaksTheRing) {
  RecordHead skip{};
  skip.kind = RecordKind::kSkip;
  for (const uint32_t bytes : {kRecordUnit, kRingBytes / 2, kRingBytes}) {
    SetUp();
    ring().taken = 0;
    skip.bytes = bytes;
    set_head(skip);
    ring().written = kRingBytes;
    expect_broken("a skip at the beginning");
  }
}

TEST_F(HostileRing, ACounterThatCannotBeBreaksTheRing) {
  ring().written = kRingBytes + 8;
  expect_broken("more than the ring has room for");
}

TEST_F(HostileRing, AReaderThatClaimsNonsenseIsAsOneThatTakesNothing) {
  ring().taken = 1ull << 40;
  while (reader->left_out() == 0) put(Operation::kSendOnly, 4096);
  for (int i = 0; i < 10; ++i) put(Operation::kSendOnly, 8);
  EXPECT_GT(reader->left_out(), 0u);
}

// Arbitrary bytes instead of a valid record with a change.
TEST_F(HostileRing, AnythingAtAllIsReadWithoutHarm) {
  std::mt19937 random(1);
  FrameBuilder builder;
  uint32_t records = 0;
  for (int round = 0; round < 3000; ++round) {
    ring().written = 0;
    ring().taken = 0;
    reader = std::make_unique<RingReader>(ring(), snap);
    writer = std::make_unique<RingWriter>(ring());
    for (uint32_t i = 0; i < 4; ++i) put(Operation::kWriteFirst, 1 + random() % 8192, 1 + random() % 8);
    for (uint32_t i = 0; i < 3; ++i) ring().data[random() % 256] = static_cast<std::byte>(random());
    while (const Record* record = reader->front()) {
      for (uint32_t i = 0; i < record->count; ++i) {
        EXPECT_LE(builder.build({}, record->path, packet_at(*record, i)).bytes.size(), 4300u);
      }
      reader->pop();
      ++records;
    }
  }
  EXPECT_GT(records, 100u);
}

TEST_F(HostileRing, AWriterThatChangesWhatIsBeingReadDoesNoHarm) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "what the one process writes while the other reads is a race by design";
#endif
  put(Operation::kSendOnly, 256);
  const uint64_t written = ring().written;
  std::atomic<bool> stop{false};
  std::thread writes([&] {
    std::mt19937 random(2);
    while (!stop) {
      auto* const word = reinterpret_cast<std::atomic<uint8_t>*>(ring().data + random() % sizeof(RecordHead));
      const uint8_t before = word->load();
      word->store(static_cast<uint8_t>(random()));
      word->store(before);
    }
  });
  FrameBuilder builder;
  uint32_t records = 0;
  // The writer may be preempted for all of this time, in the middle of a change.
  for (int i = 0; i < 20'000 || records == 0; ++i) {
    RingReader each(ring(), snap);
    if (const Record* record = each.front()) {
      ++records;
      for (uint32_t k = 0; k < record->count; ++k) builder.build({}, record->path, packet_at(*record, k));
    }
    ring().written = written;
  }
  stop = true;
  writes.join();
  EXPECT_GT(records, 0u);
}

}  // namespace
}  // namespace verbena::capture
