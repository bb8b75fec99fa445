// SPDX-License-Identifier: Apache-2.0
// The search for the program that has UDP port 4791.
#include <array>
#include <future>
#include <string>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/slots/process.h"
#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

constexpr uint16_t kPort = 4791;
constexpr Duration kLong = std::chrono::seconds(60);

TEST(PortHolderSearch, WaitsForNoSearchThatTakesLong) {
  std::promise<void> end;
  PortHolderSearch search([&](uint16_t port, const auto&) {
    end.get_future().wait();
    return PortHolderSearch::Found{"somebody at " + std::to_string(port), false};
  });
  EXPECT_FALSE(search.take(Duration::zero())) << "none was begun";
  search.begin(kPort);
  EXPECT_FALSE(search.take(Duration::zero()));
  search.begin(kPort);  // it goes on
  end.set_value();
  const auto found = search.take(kLong);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->holder, "somebody at 4791");
  EXPECT_FALSE(search.take(Duration::zero())) << "it is told once";
}

TEST(PortHolderSearch, EndsWithItsOwner) {
  std::promise<void> begun;
  PortHolderSearch search([&](uint16_t, const auto& may_go_on) {
    begun.set_value();
    while (may_go_on()) {
    }
    return PortHolderSearch::Found();
  });
  search.begin(kPort);
  begun.get_future().wait();
}

TEST(PortHolderSearch, LooksAtABoundedNumberOfDescriptors) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat about {};
  ASSERT_EQ(::fstat(socket.get(), &about), 0);
  EXPECT_EQ(process_with_socket(about.st_ino), std::to_string(::getpid()));
  int asked = 0;
  EXPECT_EQ(process_with_socket(about.st_ino, [&] { return ++asked < 2; }), "");
  EXPECT_EQ(asked, 2);
}

TEST(PortHolder, IsDescribedWithoutTheControlCharactersOfItsName) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat status {};
  ASSERT_EQ(::fstat(socket.get(), &status), 0);
  std::array<char, 16> before{};
  ASSERT_EQ(::prctl(PR_GET_NAME, before.data()), 0);
  ASSERT_EQ(::prctl(PR_SET_NAME, "a\033[31mb\u009bc"), 0);
  const std::string said = describe_holder({.uid = 7, .inode = status.st_ino}, [] { return true; });
  ::prctl(PR_SET_NAME, before.data());
  EXPECT_EQ(said, verbena::format("a?[31mb??c (pid {}) of user 7", ::getpid()));
}

}  // namespace
}  // namespace verbena::agent
