// SPDX-License-Identifier: Apache-2.0
// The blocks of a pcapng file, byte for byte as in the draft (draft-ietf-opsawg-pcapng).
#include "observe/capture/pcapng.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::capture {
namespace {

using testing::ElementsAreArray;

// Builds the expected bytes.
class Expected {
 public:
  template <class T>
  Expected& number(T value) {
    return bytes({reinterpret_cast<const char*>(&value), sizeof value});
  }
  Expected& u16(uint16_t value) { return number(value); }
  Expected& u32(uint32_t value) { return number(value); }
  Expected& u64(uint64_t value) { return number(value); }
  Expected& bytes(std::string_view text) {
    for (const char c : text) all_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  const std::vector<std::byte>& all() const { return all_; }

 private:
  std::vector<std::byte> all_;
};

std::vector<std::byte> pending(const PcapngWriter& writer) {
  return {writer.pending().begin(), writer.pending().end()};
}

TEST(Pcapng, ASectionSaysByteOrderVersionAndWhoWroteIt) {
  PcapngWriter writer;
  writer.section("verbena");
  Expected expected;
  expected.u32(0x0a0d0d0a).u32(44).u32(0x1a2b3c4d).u16(1).u16(0).u64(UINT64_MAX);
  expected.u16(4).u16(7).bytes({"verbena\0", 8});
  expected.u16(0).u16(0).u32(44);
  EXPECT_THAT(pending(writer), ElementsAreArray(expected.all()));
}

TEST(Pcapng, AnInterfaceIsOfEthernetAndCountsNanoseconds) {
  PcapngWriter writer;
  writer.interface("if", "four", 128);
  Expected expected;
  expected.u32(1).u32(48).u16(1).u16(0).u32(128);
  expected.u16(2).u16(2).bytes({"if\0\0", 4});
  expected.u16(3).u16(4).bytes("four");
  expected.u16(9).u16(1).bytes({"\x09\0\0\0", 4});
  expected.u16(0).u16(0).u32(48);
  EXPECT_THAT(pending(writer), ElementsAreArray(expected.all()));
}

TEST(Pcapng, APacketHasItsTimeBothItsLengthsItsCommentAndItsDirection) {
  PcapngWriter writer;
  const std::string frame = "12345";
  writer.packet({.interface = 3,
                 .time = WallTime(0x1122334455667788),
                 .frame = std::as_bytes(std::span(frame)),
                 .wire_bytes = 99,
                 .comment = "abc",
                 .direction = PcapngWriter::Direction::kInbound});
  Expected expected;
  expected.u32(6).u32(60).u32(3).u32(0x11223344).u32(0x55667788).u32(5).u32(99).bytes({"12345\0\0\0", 8});
  expected.u16(1).u16(3).bytes({"abc\0", 4});
  expected.u16(2).u16(4).u32(1 | 1 << 2);
  expected.u16(0).u16(0).u32(60);
  EXPECT_THAT(pending(writer), ElementsAreArray(expected.all()));
}

TEST(Pcapng, APacketNeedsNoComment) {
  PcapngWriter writer;
  writer.packet({.interface = 0, .time = WallTime(1), .frame = {}, .wire_bytes = 0, .comment = {}});
  Expected expected;
  expected.u32(6).u32(44).u32(0).u32(0).u32(1).u32(0).u32(0);
  expected.u16(2).u16(4).u32(2 | 1 << 2).u16(0).u16(0).u32(44);
  EXPECT_THAT(pending(writer), ElementsAreArray(expected.all()));
}

TEST(Pcapng, StatisticsSayHowManyWereLeftOut) {
  PcapngWriter writer;
  writer.statistics(
      0, {.began = WallTime(uint64_t{1} << 32), .ended = WallTime(2), .received = 70, .dropped = 7});
  Expected expected;
  expected.u32(5).u32(76).u32(0).u32(0).u32(2);
  expected.u16(2).u16(8).u32(1).u32(0);
  expected.u16(3).u16(8).u32(0).u32(2);
  expected.u16(4).u16(8).u64(70);
  expected.u16(5).u16(8).u64(7);
  expected.u16(0).u16(0).u32(76);
  EXPECT_THAT(pending(writer), ElementsAreArray(expected.all()));
}

TEST(Pcapng, BlocksFollowEachOtherUntilTheyAreTaken) {
  PcapngWriter writer;
  writer.section("a");
  const size_t first = writer.pending().size();
  writer.interface("b", "c", 64);
  EXPECT_GT(writer.pending().size(), first);
  writer.clear();
  EXPECT_TRUE(writer.pending().empty());
}

}  // namespace
}  // namespace verbena::capture
