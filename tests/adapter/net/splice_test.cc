// SPDX-License-Identifier: Apache-2.0
// Datagrams that are sent without a copy (splice(2)), over loopback.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/net/udp/send_run.h"
#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/splice_pipe.h"
#include "base/socket_option.h"
#include "base/unique_fd.h"

namespace verbena::net {
namespace {

const BlockPool::Receiver kSomebody{.address = {}, .slot = 2};
const BlockPool::Receiver kAnother{.address = {}, .slot = 3};

TEST(BlockPool, GivesTheFirstThatIsFree) {
  const auto pool = BlockPool::make();
  ASSERT_NE(pool, nullptr);
  BlockPool::Block first = pool->take(kSomebody);
  BlockPool::Block second = pool->take(kSomebody);
  ASSERT_TRUE(first.pin);
  EXPECT_NE(first.begin, second.begin);
  std::byte* const begin = first.begin;
  transport::BlockPin another = first.pin.again();
  first.pin = {};
  EXPECT_NE(pool->take(kSomebody).begin, begin);
  another = {};
  EXPECT_EQ(pool->take(kSomebody).begin, begin);
}

TEST(BlockPool, GivesNoneWhenAllAreInUse) {
  const auto pool = BlockPool::make();
  ASSERT_NE(pool, nullptr);
  std::vector<BlockPool::Block> all;
  for (uint32_t i = 0; i < BlockPool::kBlocks; ++i) {
    all.push_back(pool->take(kSomebody));
    ASSERT_TRUE(all.back().pin) << i;
    std::fill_n(all.back().begin, SendRun::kBlockBytes, std::byte(i));
  }
  EXPECT_FALSE(pool->take(kSomebody).pin);
  for (uint32_t i = 0; i < BlockPool::kBlocks; ++i) {
    const ConstBytes block(all[i].begin, SendRun::kBlockBytes);
    EXPECT_TRUE(std::ranges::all_of(block, [i](std::byte b) { return b == std::byte(i); })) << i;
  }
}

TEST(BlockPool, GivesABlockThatWasSplicedToNobodyElse) {
  const auto pool = BlockPool::make();
  ASSERT_NE(pool, nullptr);
  std::byte* const begin = pool->take(kSomebody).begin;
  EXPECT_EQ(pool->take(kAnother).begin, begin) << "it was not spliced";
  EXPECT_FALSE(pool->has_foreign());
  pool->mark(begin, kSomebody);
  EXPECT_NE(pool->take(kAnother).begin, begin);
  EXPECT_EQ(pool->take(kSomebody).begin, begin);
  EXPECT_TRUE(pool->has_foreign());
  const auto other = BlockPool::make();
  ASSERT_NE(other, nullptr);
  other->mark(begin, kSomebody);
  EXPECT_FALSE(other->has_foreign()) << "it is none of its blocks";
}

TEST(BlockPool, LivesAsLongAsAPin) {
  auto pool = BlockPool::make();
  ASSERT_NE(pool, nullptr);
  BlockPool::Block block = pool->take(kSomebody);
  pool.reset();
  std::fill_n(block.begin, SendRun::kBlockBytes, std::byte{1});
  block.pin = {};
}

// Datagrams from a block of memory to a socket of the same process.
class Splice : public testing::TestWithParam<int> {
 protected:
  static constexpr uint32_t kSegment = 1040;
  static constexpr uint32_t kBytes = 62 * kSegment;

  void SetUp() override {
    sender_ = UniqueFd(socket(GetParam(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    receiver_ = UniqueFd(socket(GetParam(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    name_.ipv6 = {};
    name_.generic.sa_family = static_cast<sa_family_t>(GetParam());
    if (GetParam() == AF_INET) {
      name_.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      name_.ipv6.sin6_addr = in6addr_loopback;
    }
    ASSERT_EQ(bind(receiver_.get(), &name_.generic, name_.length()), 0);
    socklen_t length = sizeof name_;
    ASSERT_EQ(getsockname(receiver_.get(), &name_.generic, &length), 0);
    set_option(receiver_.get(), IPPROTO_UDP, UDP_GRO, 1);
    ASSERT_NE(pool_, nullptr);
    for (uint32_t i = 0; i < SendRun::kBlockBytes; ++i) block_.begin[i] = std::byte(i * 7 + i / 256);
  }
  // Sends in segments, as a super-packet.
  ssize_t send(uint32_t bytes) {
    alignas(cmsghdr) std::byte control[kControlBytes];
    ControlWriter writer(control, 0);
    writer.put(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(kSegment));
    iovec data{block_.begin, bytes};
    msghdr message{&name_, name_.length(), &data, 1, control, writer.used(), 0};
    const ssize_t sent = pipe_.send(sender_.get(), message, BlockPool::kCopiedBytes);
    EXPECT_EQ(data.iov_len, bytes);
    return sent;
  }
  void expect_arrived(uint32_t bytes) {
    std::vector<std::byte> got(1 << 17);
    size_t arrived = 0;
    for (ssize_t more; arrived < bytes; arrived += static_cast<size_t>(more)) {
      more = recv(receiver_.get(), got.data() + arrived, got.size() - arrived, 0);
      ASSERT_GT(more, 0) << arrived << ", errno " << errno;
    }
    EXPECT_EQ(arrived, bytes);
    EXPECT_TRUE(std::equal(block_.begin, block_.begin + bytes, got.begin()));
    EXPECT_LT(recv(receiver_.get(), got.data(), got.size(), 0), 0);
  }

  // Returns the numbers of all descriptors that are pipes.
  static std::set<int> pipes() {
    std::set<int> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry, gone).string();
      if (target.starts_with("pipe:")) all.insert(std::stoi(entry.path().filename()));
    }
    return all;
  }

  UniqueFd sender_;
  UniqueFd receiver_;
  SocketAddress name_;
  SplicePipe pipe_;
  std::shared_ptr<BlockPool> pool_ = BlockPool::make();
  BlockPool::Block block_ = pool_->take(kSomebody);
};

TEST_P(Splice, ArrivesWhole) {
  uint64_t datagrams = 0;
  for (const uint32_t bytes :
       {uint32_t{BlockPool::kCopiedBytes} + 1, 20'000u, kBytes, SendRun::kMaxBytes - 100}) {
    ASSERT_EQ(send(bytes), static_cast<ssize_t>(bytes));
    EXPECT_EQ(pipe_.spliced(), ++datagrams);
    expect_arrived(bytes);
  }
}

// Changes the block before the datagram is read. The receiver sees the change, which shows that there was no
// copy.
TEST_P(Splice, IsWhatTheBlockHoldsWhenItIsRead) {
  ASSERT_EQ(send(kBytes), kBytes);
  std::vector<std::byte> got(1 << 17);
  const std::byte before = block_.begin[kBytes - 1];
  block_.begin[kBytes - 1] = ~before;
  ssize_t bytes = 0;
  std::byte last{};
  for (ssize_t more; bytes < kBytes; bytes += more) {
    more = recv(receiver_.get(), got.data(), got.size(), 0);
    ASSERT_GT(more, 0);
    last = got[static_cast<size_t>(more) - 1];
  }
  if (last == before) GTEST_SKIP() << "Linux before 6.5 copies what is spliced into a socket of IPv6";
  EXPECT_EQ(last, ~before);
}

TEST_P(Splice, ManyFollowEachOther) {
  for (int i = 0; i < 1000; ++i) {
    block_.begin[i] ^= std::byte{0x55};
    ASSERT_EQ(send(kBytes), kBytes);
    expect_arrived(kBytes);
  }
  EXPECT_EQ(pipe_.spliced(), 1000u);
}

TEST_P(Splice, IsRefusedAsSendmsgIs) {
  name_.ipv4.sin_port = 0;  // an invalid destination
  EXPECT_LT(send(kBytes), 0);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(pipe_.spliced(), 0u);
}

TEST_P(Splice, GoesByACopyWhereThereIsNoPipe) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(send(kBytes), kBytes);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(pipe_.spliced(), 0u);
  block_.begin[kBytes - 1] ^= std::byte{0xff};
  ASSERT_EQ(send(kBytes), kBytes) << "and so does the next, though there might be one again";
  EXPECT_EQ(pipe_.spliced(), 0u);
}

// The program has closed all descriptors, as a daemon does, and the numbers are now those of its own pipe.
TEST_P(Splice, KnowsAFileThatHasGotItsNumber) {
  const std::set<int> before = pipes();
  EXPECT_TRUE(pipe_.is_whole());
  ASSERT_EQ(send(kBytes), kBytes);
  EXPECT_TRUE(pipe_.is_whole());
  std::vector<int> ours;
  std::ranges::set_difference(pipes(), before, std::back_inserter(ours));
  ASSERT_EQ(ours.size(), 2u);
  int strange[2];
  ASSERT_EQ(pipe2(strange, O_NONBLOCK | O_CLOEXEC), 0);
  for (const int fd : ours) ASSERT_GE(dup3(strange[1], fd, O_CLOEXEC), 0);
  EXPECT_FALSE(pipe_.is_whole());
  pipe_ = SplicePipe();
  for (const int fd : {ours[0], ours[1], strange[0], strange[1]}) EXPECT_EQ(close(fd), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Splice, testing::Values(AF_INET, AF_INET6),
                         [](const auto& family) { return family.param == AF_INET ? "Ipv4" : "Ipv6"; });

}  // namespace
}  // namespace verbena::net
