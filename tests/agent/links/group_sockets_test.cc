// SPDX-License-Identifier: Apache-2.0
#include "agent/links/group_sockets.h"

#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::agent {
namespace {

constexpr uid_t kOwn = 0;
constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;

class GroupSocketsTest : public ::testing::Test {
 protected:
  // Gives the user sockets until there are no more.
  std::vector<UniqueFd> take_all(uid_t user) {
    std::vector<UniqueFd> taken;
    for (int error = 0; error == 0;) {
      UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const auto added = sockets_.add(user, socket.get(), now_);
      error = added ? 0 : added.error().code;
      EXPECT_TRUE(added || error == ENOSPC) << error;
      if (added) taken.push_back(std::move(socket));
    }
    return taken;
  }

  TimePoint now_ = TimePoint(std::chrono::hours(1));
  GroupSockets sockets_{kOwn, Quota::Size::of(240)};
};

TEST_F(GroupSocketsTest, AUserGetsAShareAndLeavesOthersTheirs) {
  const auto taken = take_all(kUser);
  EXPECT_EQ(taken.size(), 140u);
  EXPECT_GT(take_all(kOther).size(), 0u);
  EXPECT_GE(take_all(kOwn).size(), 30u);
}

TEST_F(GroupSocketsTest, ASocketCountsUntilItsLastDescriptorIsClosed) {
  auto taken = take_all(kUser);
  const UniqueFd copy(::dup(taken[0].get()));
  const size_t before = taken.size();
  taken.resize(0);
  EXPECT_EQ(sockets_.of(kUser), before) << "nobody has looked";
  EXPECT_EQ(take_all(kUser).size(), 0u) << "looks at most once a second";
  now_ += GroupSockets::kLookInterval;
  EXPECT_EQ(take_all(kUser).size(), before - 1) << "one has a descriptor still";
}

TEST_F(GroupSocketsTest, AFewThatAreClosedMakeRoomForAsMany) {
  auto taken = take_all(kUser);
  now_ += GroupSockets::kLookInterval;
  EXPECT_EQ(take_all(kUser).size(), 0u);
  now_ += GroupSockets::kLookInterval;
  taken.resize(taken.size() - 7);
  EXPECT_EQ(take_all(kUser).size(), 7u);
}

}  // namespace
}  // namespace verbena::agent
