// SPDX-License-Identifier: Apache-2.0
// The agent's account of the memory that each user's programs hold in its memfds.
#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/sessions/client_files.h"
#include "base/sealed_file.h"

namespace verbena::agent {
namespace {

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;
constexpr uid_t kOwn = 500;
constexpr size_t kLarge = 8 << 20;

UniqueFd file_in_memory() {
  auto file = make_memory_file("test", 4096);
  EXPECT_TRUE(file && seal_size(file->get(), F_SEAL_WRITE));
  return file ? std::move(*file) : UniqueFd();
}

class HeldFilesTest : public ::testing::Test {
 protected:
  // Takes files of this size until the user gets no more.
  std::vector<UniqueFd> take_all(uid_t user, size_t bytes = kLarge) {
    std::vector<UniqueFd> taken;
    while (auto file = lease(user, bytes)) taken.push_back(std::move(*file));
    return taken;
  }

  Result<UniqueFd> lease(uid_t user, size_t bytes, uint64_t session = 0) {
    return files_.lease(
        user, bytes, [] { return Result<UniqueFd>(file_in_memory()); }, session);
  }
  // Waits for a look that has begun.
  void await_look() {
    pollfd looked{.fd = closer_.fd(), .events = POLLIN, .revents = 0};
    for (bool has_ended = false; !has_ended;) {
      ASSERT_EQ(::poll(&looked, 1, -1), 1);
      for (const ForeignCloser::Done& done : closer_.take_closed()) {
        if (!done.task) continue;
        done.task();
        has_ended = true;
      }
    }
  }
  // Looks for closed files as the timer does.
  void look(uid_t user) {
    files_.begin_look(user);
    await_look();
  }

  // Returns the number of blocks that the user's programs hold. REQUIRES: somebody held some before
  size_t held_by(uid_t user) {
    look(user);
    return files_.held_by(user);
  }

  EventLoop loop_;
  ForeignCloser closer_;
  HeldFiles files_{loop_, closer_, kOwn};
};

TEST_F(HeldFilesTest, AFileCountsUntilNobodyHasItOpen) {
  auto leased = lease(kUser, kLarge);
  ASSERT_TRUE(leased);
  EXPECT_EQ(held_by(kUser), kLarge / HeldFiles::kBlockBytes);
  UniqueFd copy(::fcntl(leased->get(), F_DUPFD_CLOEXEC, 0));
  leased->reset();
  EXPECT_GT(held_by(kUser), 0u) << "another process may have such a copy";
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, copy.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  copy.reset();
  EXPECT_GT(held_by(kUser), 0u) << "it is mapped";
  ::munmap(mapped, 4096);
  EXPECT_EQ(held_by(kUser), 0u);
}

TEST_F(HeldFilesTest, CanBeReadOnly) {
  const auto leased = lease(kUser, 4096);
  ASSERT_TRUE(leased);
  EXPECT_LT(::write(leased->get(), "x", 1), 0);
  char byte = 1;
  EXPECT_EQ(::pread(leased->get(), &byte, 1, 0), 1);
}

TEST_F(HeldFilesTest, AUserGetsAShareAndLeavesOthersTheirs) {
  auto taken = take_all(kUser);
  EXPECT_GT(taken.size(), 0u);
  EXPECT_LE(taken.size() * kLarge, size_t{20} << 20);
  const auto refused = lease(kUser, kLarge);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_TRUE(lease(kOther, 4096));
  EXPECT_TRUE(lease(kOwn, 4096));
  await_look();
  taken.pop_back();
  look(kUser);
  EXPECT_TRUE(lease(kUser, kLarge)) << "once it has closed one";
}

TEST_F(HeldFilesTest, ManySmallFilesCount) {
  const auto taken = take_all(kUser, 1);
  EXPECT_LE(taken.size(), HeldFiles::kBlocks.all);
}

// Other users choose its length, by their identifiers.
TEST_F(HeldFilesTest, RootGetsALongestListWhateverOthersHold) {
  std::vector<std::vector<UniqueFd>> taken;
  for (const uid_t user : {kUser, kOther, kOther + 1}) taken.push_back(take_all(user, 1));
  EXPECT_FALSE(lease(kOther, HeldFiles::kLargest));
  EXPECT_TRUE(lease(kOwn, HeldFiles::kLargest));
}

TEST_F(HeldFilesTest, AThreadFindsTheFilesThatNobodyHasOpen) {
  auto first = lease(kUser, 4096);
  const auto second = lease(kOther, 4096);
  EXPECT_EQ(held_by(kUser), 1u);
  first->reset();
  EXPECT_EQ(files_.held_by(kUser), 1u) << "nobody has looked";
  EXPECT_EQ(held_by(kUser), 0u);
  EXPECT_EQ(held_by(kOther), 1u);
}

TEST_F(HeldFilesTest, KnowsWhetherASessionHasOne) {
  EXPECT_FALSE(files_.holds(7));
  auto leased = lease(kUser, 4096, 7);
  ASSERT_TRUE(leased);
  EXPECT_TRUE(files_.holds(7));
  EXPECT_FALSE(files_.holds(8));
  leased->reset();
  EXPECT_TRUE(files_.holds(7)) << "nobody has looked";
  look(kUser);
  EXPECT_FALSE(files_.holds(7));
}

// A lease takes a lock that readers of /proc/locks can hold for long.
TEST_F(HeldFilesTest, LooksOnTheUsersThreadBeforeARequestIsRefused) {
  TimePoint now = MonotonicClock::now();
  EXPECT_TRUE(files_.is_known(kUser, 7, now)) << "it holds nothing";
  auto leased = lease(kUser, 4096, 7);
  EXPECT_TRUE(files_.is_known(kUser, 8, now)) << "it may hold a large one more";
  EXPECT_FALSE(files_.is_known(kUser, 7, now));
  await_look();
  EXPECT_TRUE(files_.is_known(kUser, 7, now));
  EXPECT_TRUE(files_.holds(7));
  leased->reset();
  now = MonotonicClock::now();
  EXPECT_FALSE(files_.is_known(kUser, 7, now)) << "the look before does not tell";
  await_look();
  EXPECT_TRUE(files_.is_known(kUser, 7, now));
  EXPECT_FALSE(files_.holds(7));
}

TEST_F(HeldFilesTest, KnowsOfAUserWithoutRoomAfterALook) {
  auto taken = take_all(kUser);
  await_look();  // the refusal has begun it
  const TimePoint now = MonotonicClock::now();
  EXPECT_TRUE(files_.is_known(kOther, 0, now));
  EXPECT_FALSE(files_.is_known(kUser, 0, now));
  taken.pop_back();
  await_look();
  EXPECT_TRUE(files_.is_known(kUser, 0, now));
}

}  // namespace
}  // namespace verbena::agent
