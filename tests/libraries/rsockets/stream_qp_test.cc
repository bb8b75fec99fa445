// SPDX-License-Identifier: Apache-2.0
// The end of a connection, over a device of the test.
#include "libraries/rsockets/stream_qp.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "libraries/rsockets/support/fake_device.h"

namespace verbena::rsockets {
namespace {

using testing::FakeDevice;

const uint32_t kFromPeer = Message{Operation::kIomap, 0}.encode();

class StreamEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = StreamQp::create(&device_.id, Sizes{});
    ASSERT_TRUE(created);
    qp_ = std::move(*created);
    ConnectData peer;
    peer.credits = 60;
    peer.table = {0, 0, kTableEntries};
    qp_->meet(peer);
  }
  size_t bytes_received() const {
    std::array<std::byte, 4096> bytes;
    const iovec all{bytes.data(), bytes.size()};
    return qp_->peek(Buffers(&all, 1));
  }

  FakeDevice device_;
  std::unique_ptr<StreamQp> qp_;
};

TEST_F(StreamEnd, DataThatHaveArrivedCanBeRead) {
  for (int i = 0; i < 100; ++i) device_.completed.push_back(Message{Operation::kData, 3}.encode());
  qp_->end(MonotonicClock::now());
  EXPECT_EQ(bytes_received(), 300U);
  EXPECT_FALSE(qp_->is_up());
}

TEST_F(StreamEnd, PeerThatGoesOnSendingIsHeardForOnePass) {
  const size_t posted = device_.receives;
  device_.without_end = kFromPeer;
  qp_->end(MonotonicClock::now());
  EXPECT_EQ(device_.delivered, posted);
  EXPECT_FALSE(qp_->is_up());
}

TEST_F(StreamEnd, DataThatCompleteLateCanBeReadBeforeTheDeadline) {
  device_.completed = {std::nullopt, std::nullopt, Message{Operation::kData, 3}.encode(), std::nullopt,
                       Message::control(Control::kDisconnect).encode()};
  qp_->end(kNever);
  EXPECT_EQ(bytes_received(), 3U);
  EXPECT_TRUE(device_.completed.empty());
}

}  // namespace
}  // namespace verbena::rsockets
