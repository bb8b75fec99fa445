// SPDX-License-Identifier: Apache-2.0
// Trace rings with arbitrary contents: the reader terminates, and every event that it returns can be printed.
#include <cstring>
#include <vector>

#include <gmock/gmock.h>

#include "base/random.h"
#include "observe/trace/event_words.h"
#include "observe/trace/ring_file.h"

namespace verbena::trace {
namespace {

constexpr size_t kMaxEvents = 2 * protocol::kTraceEntries;

void expect_harmless(const std::vector<Event>& events) {
  ASSERT_LE(events.size(), kMaxEvents);
  for (const Event& event : events) {
    EXPECT_NE(words_of(event), "unknown");
    EXPECT_LE(event.qpn, 0xffffffu);
    for (const char c : words_of(event)) ASSERT_GE(c, ' ');
    for (const Field& field : fields_of(event.kind)) ASSERT_FALSE(field.name.empty());
  }
}

TEST(HostileRings, AnyBytesAreRead) {
  RingFile file;
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    auto* const bytes = reinterpret_cast<unsigned char*>(&file.rings());
    for (size_t at = 0; at < sizeof(protocol::TraceRings); at += 8) {
      const uint64_t word = random.next();
      std::memcpy(bytes + at, &word, 8);
    }
    file.rings().magic = protocol::TraceRings::kMagic;
    file.rings().events.written = round % 2 == 0 ? random.next() : random.next() % 10'000;
    Reader reader = file.reader();
    expect_harmless(reader.read());
    file.rings().events.written = random.next();
    expect_harmless(reader.read());
  }
}

// Valid entries with arbitrary numbers.
TEST(HostileRings, AnyNumbersOfEachKindHaveWords) {
  RingFile file;
  Random random(2);
  Recorder recorder(file.rings());
  const auto put_all = [&](uint64_t mask) {
    for (int kind = 0; kind < 256; ++kind) {
      recorder.note(roce::Qpn(0x11), static_cast<Kind>(kind),
                    {random.next() & mask, random.next() & mask, random.next() & mask, random.next() & mask});
    }
  };
  put_all(0);
  for (int round = 0; round < 5; ++round) put_all(0xff);
  for (int round = 0; round < 5; ++round) put_all(~uint64_t{0});
  Reader reader = file.reader();
  const auto events = reader.read();
  EXPECT_GT(events.size(), 250u);
  expect_harmless(events);
}

TEST(HostileRings, AWriterThatClaimsWithoutEndIsReadOnce) {
  RingFile file;
  Recorder recorder(file.rings());
  recorder.note(roce::Qpn(0x11), Kind::kProbe);
  Reader reader = file.reader();
  file.rings().events.written = UINT64_MAX;
  EXPECT_TRUE(reader.read().empty());
  file.rings().events.written = INT64_MAX;
  EXPECT_TRUE(reader.read().empty());
  file.rings().events.written = 1;
  EXPECT_TRUE(reader.read().empty()) << "it has taken the claim for true";
}

TEST(HostileRings, AFileThatEndsTooSoonHasNoEvents) {
  RingFile file;
  Recorder recorder(file.rings());
  recorder.note(roce::Qpn(0x11), Kind::kProbe);
  ASSERT_EQ(::ftruncate(file.fd(), 128), 0);
  EXPECT_TRUE(file.reader().read().empty());
}

}  // namespace
}  // namespace verbena::trace
