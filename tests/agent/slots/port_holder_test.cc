// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/port_holder.h"

#include <array>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

TEST(PortHolder, IsDescribedWithoutTheControlCharactersOfItsName) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat status {};
  ASSERT_EQ(::fstat(socket.get(), &status), 0);
  std::array<char, 16> before{};
  ASSERT_EQ(::prctl(PR_GET_NAME, before.data()), 0);
  ASSERT_EQ(::prctl(PR_SET_NAME, "a\033[31mb\u009bc"), 0);
  const std::string said = describe_holder({.uid = 7, .inode = status.st_ino});
  ::prctl(PR_SET_NAME, before.data());
  EXPECT_EQ(said, verbena::format("a?[31mb??c (pid {}) of user 7", ::getpid()));
}

}  // namespace
}  // namespace verbena::agent
