// SPDX-License-Identifier: Apache-2.0
// The fields that the two ends exchange, as perftest writes them.
#include "commands/perf/exchange.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace verbena::perf {
namespace {

constexpr std::string_view kText =
    "0000:0080:00ee9e:44752e:2e86a39f:000055a6b7f13000:fe:80:00:00:00:00:00:00:f8:b2:1f:ff:fe:6b:45:38:"
    "00000000:";

std::array<char, kKeysLength> bytes_of(std::string_view text) {
  std::array<char, kKeysLength> bytes{};
  std::copy_n(text.begin(), std::min(text.size(), bytes.size()), bytes.begin());
  return bytes;
}

TEST(PerfKeys, AreWrittenAsPerftestDoes) {
  const auto keys = read_keys(bytes_of(kText));
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys->reads, 0x80U);
  EXPECT_EQ(keys->qp_num, 0xee9eU);
  EXPECT_EQ(keys->psn, 0x44752eU);
  EXPECT_EQ(keys->rkey, 0x2e86a39fU);
  EXPECT_EQ(keys->address, 0x55a6b7f13000U);
  EXPECT_EQ(keys->gid.raw[0], 0xfe);
  EXPECT_EQ(keys->gid.raw[15], 0x38);
  const auto written = write_keys(*keys);
  EXPECT_EQ(std::string_view(written.data()), kText);
}

TEST(PerfKeys, OfAnotherFormAreRefused) {
  const auto is_refused = [](std::string text) { return !read_keys(bytes_of(text)); };
  EXPECT_TRUE(is_refused(""));
  EXPECT_TRUE(is_refused(std::string(kKeysLength, ':')));
  EXPECT_TRUE(is_refused(std::string(kKeysLength, '0')));
  EXPECT_TRUE(is_refused(std::string(kText.substr(0, 50))));
  for (const std::size_t at : {0, 10, 30, 60, 100}) {
    for (const char wrong : {'-', 'g', '\0', ' '}) {
      std::string text(kText);
      text[at] = wrong;
      EXPECT_TRUE(is_refused(text)) << at << wrong;
    }
  }
  std::string large(kText);
  large.replace(10, 6, "1000000");  // a queue pair's number of 25 bits
  EXPECT_TRUE(is_refused(large));
}

// Two channels whose ends are in one process.
struct Wire {
  std::string bytes;
};
class TestChannel final : public Channel {
 public:
  TestChannel(Wire& out, std::string in) : out_(out), in_(std::move(in)) {}
  void write(std::span<const char> bytes) override { out_.bytes.append(bytes.data(), bytes.size()); }
  void read(std::span<char> bytes) override {
    ASSERT_GE(in_.size(), bytes.size());
    std::copy_n(in_.begin(), bytes.size(), bytes.begin());
    in_.erase(0, bytes.size());
  }
  void write(const Keys& keys) override { write(std::span<const char>(write_keys(keys))); }
  Keys read_keys() override { return {}; }
  void end() override { out_.bytes += "end"; }

 private:
  Wire& out_;
  std::string in_;
};

Exchange exchange_with(Wire& out, std::string in) {
  return Exchange(std::make_unique<TestChannel>(out, std::move(in)), true);
}

TEST(PerfExchange, RefusesOldVersions) {
  Wire out;
  EXPECT_NO_THROW(exchange_with(out, std::string("6.06") + std::string(12, '\0')).versions());
  EXPECT_EQ(out.bytes, std::string("6.06") + std::string(12, '\0'));
  EXPECT_THROW(exchange_with(out, std::string("5.60") + std::string(12, '\0')).versions(),
               std::runtime_error);
  EXPECT_THROW(exchange_with(out, std::string(16, 'x')).versions(), std::runtime_error);
}

// perftest's programs read the version as a number, and look at no more.
TEST(PerfExchange, MarksTheVersionOfAClientThatGivesOrders) {
  const std::string plain = std::string("6.06") + std::string(12, '\0');
  const std::string marked = std::string("6.06\0\0verbena-1\0", 16);
  Wire out;
  EXPECT_EQ(exchange_with(out, plain).versions(true), PeerKind::kOneTest);
  EXPECT_EQ(out.bytes, marked);
  EXPECT_EQ(exchange_with(out, marked).versions(true), PeerKind::kTakesOrders);

  const auto answer_to = [](std::string in) {
    Wire answer;
    Exchange(std::make_unique<TestChannel>(answer, std::move(in)), false).versions();
    return answer.bytes;
  };
  EXPECT_EQ(answer_to(marked), marked);
  EXPECT_EQ(answer_to(plain), plain) << "the exchange with perftest's clients stays the same";
}

TEST(PerfExchange, AgreesOnTheLargerLayoutAndTheSmallerMtu) {
  Wire out;
  std::uint32_t cycle = 4096, line = 64;
  exchange_with(out, std::string("\0\1\0\0\0\0\0\x80", 8)).layout(cycle, line);
  EXPECT_EQ(cycle, 65536U);
  EXPECT_EQ(line, 128U);
  EXPECT_EQ(out.bytes, std::string("\0\0\x10\0\0\0\0\x40", 8));
  EXPECT_THROW(exchange_with(out, std::string("\x7f\0\0\0\0\0\0\x40", 8)).layout(cycle, line),
               std::runtime_error);
  EXPECT_THROW(exchange_with(out, std::string("\0\2\0\0\0\0\0\x40", 8)).layout(cycle, line),
               std::runtime_error);
  EXPECT_EQ(exchange_with(out, std::string("3\0", 2)).mtu(IBV_MTU_4096), IBV_MTU_1024);
  EXPECT_EQ(exchange_with(out, std::string("5\0", 2)).mtu(IBV_MTU_1024), IBV_MTU_1024);
  EXPECT_EQ(exchange_with(out, std::string("x\0", 2)).mtu(IBV_MTU_1024), IBV_MTU_1024);
}

struct SocketPair {
  SocketPair() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    one = channel_over(UniqueFd(ends[0]));
    other = channel_over(UniqueFd(ends[1]));
  }
  std::unique_ptr<Channel> one, other;
};

TEST(PerfExchange, PartsWhenThePeerHasPartedOrGone) {
  SocketPair pair;
  std::atomic<bool> peer_parts = false;
  std::jthread parting([&] {
    Exchange(borrow(*pair.one), true).part();
    EXPECT_TRUE(peer_parts) << "the peer may still need this end's queue pairs";
    pair.one->part();
  });
  peer_parts = true;
  Exchange(borrow(*pair.other), false).part();
  std::array<char, 1> byte{};
  EXPECT_THROW(pair.other->read(byte), std::runtime_error) << "the other end has parted";
  pair.other.reset();
  parting.join();
}

}  // namespace
}  // namespace verbena::perf
