// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "adapter/net/udp/receiver.h"
#include "base/unique_fd.h"

namespace verbena::net {
namespace {

class ReadDatagrams : public testing::Test {
 protected:
  ReadDatagrams() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    from_ = UniqueFd(ends[0]);
    to_ = UniqueFd(ends[1]);
  }

  void send(size_t bytes) {
    const std::array<std::byte, 2048> data{};
    ASSERT_EQ(::send(from_.get(), data.data(), bytes, 0), static_cast<ssize_t>(bytes));
  }

  UniqueFd from_;
  UniqueFd to_;
};

TEST_F(ReadDatagrams, AreAsManyAsThereAre) {
  DatagramBatch batch;
  EXPECT_EQ(batch.read(to_.get(), DatagramBatch::kMax), 0u);
  send(100);
  send(200);
  ASSERT_EQ(batch.read(to_.get(), DatagramBatch::kMax), 2u);
  EXPECT_EQ(batch.data(0).size(), 100u);
  EXPECT_EQ(batch.data(1).size(), 200u);
}

TEST_F(ReadDatagrams, AreCutOffWhereTheyAreLongerThanAsked) {
  DatagramBatch batch(1000);
  send(2048);
  ASSERT_EQ(batch.read(to_.get(), 1), 1u);
  EXPECT_EQ(batch.data(0).size(), 1000u);
}

// Buffers begin half a page into a page, where the kernel's copies are fast: see receiver.cc.
TEST_F(ReadDatagrams, LieHalfAPageFromTheBeginningOfOne) {
  for (const size_t longest : {65536, 1000}) {
    DatagramBatch batch(longest);
    for (uint32_t i = 0; i < DatagramBatch::kMax; ++i) send(100);
    ASSERT_EQ(batch.read(to_.get(), DatagramBatch::kMax), DatagramBatch::kMax);
    for (uint32_t i = 0; i < DatagramBatch::kMax; ++i) {
      EXPECT_EQ(std::bit_cast<uintptr_t>(batch.data(i).data()) % 4096, 2048u);
    }
  }
}

}  // namespace
}  // namespace verbena::net
