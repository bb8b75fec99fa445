// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/domain_table.h"

#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/temporary_file.h"

namespace verbena::agent {
namespace {

using test::temporary_file;

class DomainTableTest : public ::testing::Test {
 protected:
  static constexpr DomainTable::Mode kCreate{.create = true, .exclusive = false};
  static constexpr DomainTable::Mode kJoin{};
  static constexpr DomainTable::Mode kNew{.create = true, .exclusive = true};

  // Returns 0 or the error of open().
  int open(const DomainTable::Member& member, int fd, DomainTable::Mode mode = kCreate, uint32_t device = 1) {
    const auto opened = table.open(member, fd, device, mode);
    return opened ? 0 : opened.error().code;
  }
  bool meet(uint64_t session, uint64_t name, uint32_t slot) {
    return table.find(session, name, slot).has_value();
  }

  static constexpr uid_t kOwn = 500;
  static constexpr Quota::Size kMembers = DomainTable::room_with(1 << 20);

  ForeignCloser closer;
  DomainTable table{closer, kOwn, kMembers};
  UniqueFd file = temporary_file();
  UniqueFd other = temporary_file();
};

TEST_F(DomainTableTest, SessionsMeetByInodeWhateverTheyCallIt) {
  const UniqueFd same(::dup(file.get()));
  EXPECT_EQ(open({.session = 1, .name = 10, .slot = 5}, file.get()), 0);
  EXPECT_EQ(open({.session = 2, .name = 20, .slot = 6}, same.get(), kJoin), 0);
  EXPECT_EQ(open({.session = 3, .name = 20, .slot = 7}, other.get()), 0);
  const auto found = table.find(1, 10, 6);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->session, 2u);
  EXPECT_EQ(found->name, 20u);
  EXPECT_TRUE(meet(2, 20, 5));
  EXPECT_FALSE(meet(1, 10, 7)) << "of another file";
  EXPECT_FALSE(meet(2, 10, 5)) << "a name of another session";
  EXPECT_EQ(table.slot_of(2, 20), 6u);
}

TEST_F(DomainTableTest, EachDeviceHasItsOwn) {
  EXPECT_EQ(open({1, 10, 5}, file.get(), kCreate, 1), 0);
  EXPECT_EQ(open({2, 20, 6}, file.get(), kJoin, 2), EAGAIN);
  EXPECT_EQ(open({2, 20, 6}, file.get(), kNew, 2), 0);
  EXPECT_FALSE(meet(1, 10, 6));
}

TEST_F(DomainTableTest, OpensAsTheKernelDoes) {
  EXPECT_EQ(open({1, 10, 5}, file.get(), kJoin), EAGAIN);
  EXPECT_EQ(open({1, 10, 5}, file.get(), kNew), 0);
  EXPECT_EQ(open({2, 20, 6}, file.get(), kNew), EINVAL);
  EXPECT_EQ(open({2, 20, 6}, file.get(), kJoin), 0);
  EXPECT_EQ(open({1, 10, 5}, other.get()), EINVAL) << "it has one of that name";
}

TEST_F(DomainTableTest, EndsWithItsLastMember) {
  open({1, 10, 5}, file.get());
  open({2, 20, 6}, file.get());
  EXPECT_TRUE(table.close(1, 10));
  EXPECT_FALSE(table.close(1, 10));
  EXPECT_EQ(open({3, 30, 7}, file.get(), kJoin), 0);
  table.close_all(2);
  table.close_slot(3, 7);
  EXPECT_EQ(open({4, 40, 8}, file.get(), kJoin), EAGAIN);
}

TEST_F(DomainTableTest, ASlotsDomainsEndWithTheSlotAndNoOthers) {
  open({1, 10, 5}, file.get());
  open({1, 11, 6}, other.get());
  open({2, 20, 5}, other.get());
  table.close_slot(1, 5);
  EXPECT_FALSE(table.slot_of(1, 10));
  EXPECT_EQ(table.slot_of(1, 11), 6u);
  EXPECT_TRUE(meet(1, 11, 5)) << "of another session";
  EXPECT_EQ(open({3, 30, 7}, file.get(), kJoin), EAGAIN) << "it had no other member";
}

TEST_F(DomainTableTest, OnlyWhoCanOpenTheFileJoins) {
  open({1, 10, 5}, file.get());
  const UniqueFd name_only(::open("/tmp", O_PATH | O_CLOEXEC));
  EXPECT_EQ(open({2, 20, 6}, name_only.get()), EBADF);
  EXPECT_EQ(open({2, 20, 6}, -1), EBADF);
}

TEST_F(DomainTableTest, KeepsTheInodeAndNothingElseOfTheFile) {
  char name[] = "/tmp/verbena-domain-XXXXXX";
  UniqueFd locked(::mkstemp(name));
  ASSERT_EQ(::flock(locked.get(), LOCK_EX), 0);
  open({1, 10, 5}, locked.get());
  locked.reset();
  const UniqueFd again(::open(name, O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(::flock(again.get(), LOCK_EX | LOCK_NB), 0) << "its lock went with it";
  EXPECT_EQ(open({2, 20, 6}, again.get(), kJoin), 0);
  ::unlink(name);
}

TEST_F(DomainTableTest, ASessionHasNoMoreThanItCanUse) {
  for (uint64_t name = 0; name < DomainTable::kMaxOfSession; ++name)
    ASSERT_EQ(open({1, name, 5}, file.get()), 0);
  EXPECT_EQ(open({1, 1000, 5}, file.get()), ENOMEM);
  EXPECT_EQ(open({2, 1000, 6}, file.get()), 0);
}

// A user with many programs, each with the maximum number of domains.
TEST_F(DomainTableTest, OneUserLeavesRoomForOthers) {
  constexpr uid_t kUser = 1000;
  uint64_t number = 0;
  int error = 0;
  for (; error == 0 && number < kMembers.all; ++number) {
    error = open({.session = number / 200, .name = number, .slot = 5, .user = kUser}, file.get());
  }
  EXPECT_EQ(error, ENOMEM);
  EXPECT_LT(number, kMembers.all - kMembers.reserve);
  EXPECT_EQ(open({.session = 9000, .name = 1, .slot = 6, .user = kUser + 1}, file.get()), 0);
  EXPECT_EQ(open({.session = 9001, .name = 1, .slot = 7, .user = kOwn}, file.get()), 0);
  table.close_all(0);
  EXPECT_EQ(open({.session = 9002, .name = 1, .slot = 5, .user = kUser}, file.get()), 0)
      << "once it has less";
}

}  // namespace
}  // namespace verbena::agent
