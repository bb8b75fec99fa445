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
    while (auto file = files_.lease(user, file_in_memory().get(), bytes)) taken.push_back(std::move(*file));
    return taken;
  }

  // Looks for closed files as the timer does.
  void look() {
    files_.begin_look();
    pollfd looked{.fd = closer_.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&looked, 1, -1), 1);
    for (const ForeignCloser::Done& done : closer_.take_closed()) {
      if (done.task) done.task();
    }
  }

  // Returns the number of blocks that the user's programs hold. REQUIRES: somebody held some before
  size_t held_by(uid_t user) {
    look();
    return files_.held_by(user);
  }

  EventLoop loop_;
  ForeignCloser closer_;
  HeldFiles files_{loop_, closer_, kOwn};
};

TEST_F(HeldFilesTest, AFileCountsUntilNobodyHasItOpen) {
  auto leased = files_.lease(kUser, file_in_memory().get(), kLarge);
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
  const auto leased = files_.lease(kUser, file_in_memory().get(), 4096);
  ASSERT_TRUE(leased);
  EXPECT_LT(::write(leased->get(), "x", 1), 0);
  char byte = 1;
  EXPECT_EQ(::pread(leased->get(), &byte, 1, 0), 1);
}

TEST_F(HeldFilesTest, AUserGetsAShareAndLeavesOthersTheirs) {
  auto taken = take_all(kUser);
  EXPECT_GT(taken.size(), 0u);
  EXPECT_LE(taken.size() * kLarge, size_t{20} << 20);
  const auto refused = files_.lease(kUser, file_in_memory().get(), kLarge);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_TRUE(files_.lease(kOther, file_in_memory().get(), 4096));
  EXPECT_TRUE(files_.lease(kOwn, file_in_memory().get(), 4096));
  taken.pop_back();
  EXPECT_TRUE(files_.lease(kUser, file_in_memory().get(), kLarge)) << "once it has closed one";
}

TEST_F(HeldFilesTest, ManySmallFilesCount) {
  const auto taken = take_all(kUser, 1);
  EXPECT_LE(taken.size(), HeldFiles::kBlocks.all);
}

TEST_F(HeldFilesTest, TheSameFileCountsOnce) {
  const UniqueFd kept = file_in_memory();
  std::vector<UniqueFd> leased;
  for (int i = 0; i < 100; ++i) {
    auto file = files_.lease(kUser, kept.get(), kLarge);
    ASSERT_TRUE(file);
    leased.push_back(std::move(*file));
  }
  EXPECT_EQ(held_by(kUser), kLarge / HeldFiles::kBlockBytes);
  leased.clear();
  EXPECT_EQ(held_by(kUser), 0u) << "the agent's own is not counted";
}

TEST_F(HeldFilesTest, AThreadFindsTheFilesThatNobodyHasOpen) {
  auto first = files_.lease(kUser, file_in_memory().get(), 4096);
  const auto second = files_.lease(kOther, file_in_memory().get(), 4096);
  EXPECT_EQ(held_by(kUser), 1u);
  first->reset();
  EXPECT_EQ(files_.held_by(kUser), 1u) << "nobody has looked";
  EXPECT_EQ(held_by(kUser), 0u);
  EXPECT_EQ(held_by(kOther), 1u);
}

TEST_F(HeldFilesTest, AFileThatIsLeasedAgainDuringALookCounts) {
  const UniqueFd kept = file_in_memory();
  auto leased = files_.lease(kUser, kept.get(), 4096);
  leased->reset();
  files_.begin_look();
  leased = files_.lease(kUser, kept.get(), 4096);
  ASSERT_TRUE(leased);
  EXPECT_EQ(held_by(kUser), 1u);
}

TEST_F(HeldFilesTest, KnowsWhetherASessionHasOne) {
  EXPECT_FALSE(files_.holds(7));
  auto leased = files_.lease(kUser, file_in_memory().get(), 4096, 7);
  ASSERT_TRUE(leased);
  EXPECT_TRUE(files_.holds(7));
  EXPECT_FALSE(files_.holds(8));
  leased->reset();
  EXPECT_FALSE(files_.holds(7));
}

}  // namespace
}  // namespace verbena::agent
