// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/unread_files.h"

#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lingering_socket.h"
#include "control/model/message_socket.h"

namespace verbena::engine {
namespace {

class UnreadFilesTest : public testing::Test {
 protected:
  ~UnreadFilesTest() override {
    theirs.clear();
    EXPECT_TRUE(may_send_file(kUser)) << "forgets the sockets whose other ends are closed";
    test::await_discards();
  }
  // Sends a descriptor to a process of the user and hangs up. Its end of the socket is the last of `theirs`.
  void leave_unread(uid_t user) {
    SentFiles files;
    ForeignSocket ours = send_file(files, user);
    files.hang_up(ours, user);
  }
  // The same, but does not hang up. Returns our end.
  ForeignSocket send_file(SentFiles& files, uid_t user) {
    auto ends = control::make_socket_pair();
    EXPECT_TRUE(ends);
    const int file = STDIN_FILENO;
    theirs.push_back(std::move(ends->theirs));
    ForeignSocket ours(std::move(ends->ours));
    files.send(ours, user, kNow);
    EXPECT_TRUE(control::send_message(ours.get(), std::array{std::byte{}}, {&file, 1}));
    return ours;
  }
  // Reads what is there. Returns whether that was the end.
  static bool read(const UniqueFd& socket) {
    std::array<std::byte, 8> buffer;
    return ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) == 0;
  }

  static constexpr TimePoint kNow{std::chrono::hours(1)};
  static constexpr TimePoint kLater = kNow + kUnreadAfter;
  const uid_t kUser = ::geteuid() + 1;
  std::vector<UniqueFd> theirs;
};

TEST_F(UnreadFilesTest, OfOneUserAreLimited) {
  for (size_t i = 0; i < kMaxUnreadOfUser; ++i) {
    EXPECT_TRUE(may_send_file(kUser));
    leave_unread(kUser);
  }
  EXPECT_FALSE(may_send_file(kUser));
  EXPECT_TRUE(may_send_file(kUser + 1));
  EXPECT_TRUE(may_send_file(::geteuid()));
}

TEST_F(UnreadFilesTest, CountUntilTheyAreRead) {
  for (size_t i = 0; i < kMaxUnreadOfUser; ++i) leave_unread(kUser);
  ASSERT_FALSE(may_send_file(kUser));
  EXPECT_FALSE(read(theirs[0]));
  EXPECT_TRUE(may_send_file(kUser));
}

TEST_F(UnreadFilesTest, CountUntilTheOtherEndIsClosed) {
  for (size_t i = 0; i < kMaxUnreadOfUser; ++i) leave_unread(kUser);
  ASSERT_FALSE(may_send_file(kUser));
  theirs.pop_back();
  EXPECT_TRUE(may_send_file(kUser));
}

TEST_F(UnreadFilesTest, OfAllUsersAreLimited) {
  for (size_t i = 0; i < kMaxUnread; ++i) leave_unread(kUser + static_cast<uid_t>(i));
  EXPECT_FALSE(may_send_file(kUser + 1'000'000));
  EXPECT_TRUE(may_send_file(::geteuid()));
}

TEST_F(UnreadFilesTest, TheOtherEndSeesTheHangUp) {
  leave_unread(kUser);
  test::await_discards();
  EXPECT_FALSE(read(theirs[0])) << "the message";
  EXPECT_TRUE(read(theirs[0]));
}

TEST_F(UnreadFilesTest, OfChannelsThatHaveNotEndedCountAfterAMoment) {
  std::array<SentFiles, kMaxUnreadOfUser + 1> files;
  std::vector<ForeignSocket> ours;
  for (SentFiles& each : files) ours.push_back(send_file(each, kUser));
  EXPECT_TRUE(may_send_file(kUser, kNow)) << "handshakes take a moment";
  EXPECT_FALSE(may_send_file(kUser, kLater));
  EXPECT_TRUE(may_send_file(kUser + 1, kLater));
  for (const UniqueFd& each : theirs) read(each);
  EXPECT_TRUE(may_send_file(kUser, kLater));
  for (const ForeignSocket& each : ours) ASSERT_EQ(::send(each.get(), "", 1, 0), 1);
  EXPECT_TRUE(may_send_file(kUser, kLater)) << "rings have no descriptors";
  for (size_t i = 0; i < files.size(); ++i) files[i].hang_up(ours[i], kUser);
}

TEST_F(UnreadFilesTest, OfAChannelCountOnce) {
  for (size_t i = 1; i < kMaxUnreadOfUser; ++i) leave_unread(kUser);
  SentFiles files;
  ForeignSocket ours = send_file(files, kUser);
  files.send(ours, kUser, kNow);
  ASSERT_FALSE(may_send_file(kUser, kLater));
  files.hang_up(ours, kUser);
  EXPECT_FALSE(may_send_file(kUser, kLater));
  theirs.pop_back();
  EXPECT_TRUE(may_send_file(kUser, kLater));
}

TEST_F(UnreadFilesTest, ThatWereReadLeaveNoDescriptor) {
  SentFiles files;
  ForeignSocket ours = send_file(files, kUser);
  read(theirs[0]);
  const size_t before = test::open_descriptors();
  files.hang_up(ours, kUser);
  test::await_discards();
  EXPECT_EQ(test::open_descriptors(), before - 1);
}

}  // namespace
}  // namespace verbena::engine
