// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/socket.h>

#include "agent/cm/routes.h"
#include "agent/links/link_table.h"
#include "agent/network_namespace.h"

namespace verbena::agent {
namespace {

CmAddress address(const char* host, uint16_t family = AF_INET) {
  CmAddress result{};
  result.family = family;
  ::inet_pton(family, host, result.address);
  return result;
}

// A link whose other end answers no neighbor requests.
class NeighboursTest : public test::NamespaceTest, public ::testing::WithParamInterface<NeighbourQuery> {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(
        test::shell("ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && "
                    "ip address add 10.9.0.1/24 dev v0"));
    auto opened = RouteQuery::open(GetParam());
    ASSERT_TRUE(opened);
    routes_.emplace(std::move(*opened));
    neighbours_.emplace(loop_, *routes_,
                        [this](uint32_t netdev) { return table_.needs_no_neighbours(netdev); });
  }
  Neighbours::Ticket await(const CmAddress& neighbour, Duration patience = std::chrono::hours(1)) {
    return neighbours_->await(::geteuid(), ::if_nametoindex("v0"), neighbour,
                              MonotonicClock::now() + patience,
                              [this](int error) { ends_.push_back(error); });
  }
  static bool learn(const char* host) {
    return test::shell(std::string("ip neighbour replace ") + host + " lladdr 02:00:00:00:00:09 dev v0");
  }

  // Returns the inodes of this process's sockets.
  static std::set<std::string> open_sockets() {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry, error);
      if (target.starts_with("socket:")) all.insert(target);
    }
    return all;
  }
  // Causes more events than the socket of `neighbours_` takes.
  static bool overflow() {
    return test::shell(
        "for i in $(seq 2000); do echo neighbour replace 10.9.1.$((i % 250 + 1)) lladdr "
        "02:00:00:00:$((i / 250 + 10)):09 dev v0; done | ip -batch -");
  }
  static bool is_searched_for(const char* host) {
    return test::shell(std::string("ip neighbour show dev v0 | grep -q '^") + host + " '");
  }

  EventLoop loop_;
  LinkTable table_;
  std::optional<RouteQuery> routes_;
  std::optional<Neighbours> neighbours_;
  std::vector<int> ends_;
};

TEST_P(NeighboursTest, EachWhoWaitsHearsOfItOnce) {
  await(address("10.9.0.2"));
  await(address("10.9.0.2"));
  await(address("10.9.0.3"));
  ASSERT_TRUE(learn("10.9.0.2"));
  while (ends_.size() < 2) loop_.run_round();
  EXPECT_EQ(ends_, (std::vector{0, 0}));
  EXPECT_EQ(neighbours_->waiting(), 1u);
}

// So a user with many identifiers delays nobody.
TEST_P(NeighboursTest, AWaitEndsInATurnOfItsUser) {
  await(address("10.9.0.2"), -std::chrono::seconds(1));
  await(address("10.9.0.3"));
  ASSERT_TRUE(learn("10.9.0.3"));
  while (ends_.size() < 2) {
    const size_t before = ends_.size();
    const bool has_turn = loop_.has_work_for(::geteuid());
    loop_.run_round();
    EXPECT_TRUE(has_turn || ends_.size() == before);
  }
  EXPECT_EQ(ends_, (std::vector{0, ETIMEDOUT}));
}

TEST_P(NeighboursTest, WhoHasCancelledHearsNothing) {
  const auto ticket = await(address("10.9.0.2"));
  await(address("10.9.0.2"));
  neighbours_->cancel(ticket);
  ASSERT_TRUE(learn("10.9.0.2"));
  while (ends_.empty()) loop_.run_round();
  EXPECT_EQ(ends_.size(), 1u);
  EXPECT_EQ(neighbours_->waiting(), 0u);
}

TEST_P(NeighboursTest, NewsThatTheSocketLosesAreFoundOut) {
  for (int i = 2; i < 200; ++i) await(address(("10.9.0." + std::to_string(i)).c_str()));
  ASSERT_TRUE(overflow());
  ASSERT_TRUE(learn("10.9.0.2"));
  ASSERT_TRUE(learn("10.9.0.199"));
  while (ends_.size() < 2) loop_.run_round();
  EXPECT_EQ(ends_, (std::vector{0, 0}));
  EXPECT_EQ(neighbours_->waiting(), 196u);
}

// The kernel would answer a question about the netdev only when nobody configures one, in any namespace.
TEST_P(NeighboursTest, TheLinkTableSaysWhichNetdevNeedsNone) {
  Netdev netdev;
  netdev.index = ::if_nametoindex("v0");
  netdev.without_neighbours = true;
  table_.netdev_changed(netdev);
  await(address("10.9.0.2"));
  while (ends_.empty()) loop_.run_round();
  EXPECT_EQ(ends_, std::vector{0});
}

// A user may have a hundred thousand identifiers wait for one neighbor, and end them all at once.
TEST_P(NeighboursTest, ManyWhoWaitForOneEndInNoTime) {
  constexpr size_t kMany = 40'000;
  std::vector<Neighbours::Ticket> tickets;
  for (size_t i = 0; i < kMany; ++i) tickets.push_back(await(address("10.9.0.2")));
  const TimePoint began = MonotonicClock::now();
  for (const Neighbours::Ticket ticket : tickets) neighbours_->cancel(ticket);
  EXPECT_LT(MonotonicClock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(neighbours_->waiting(), 0u);
}

// The kernel may wait when a netlink socket that gets events is bound or closed.
TEST_P(NeighboursTest, TheirNetlinkSocketStaysOpen) {
  const auto cancelled = [this] {
    neighbours_->cancel(await(address("10.9.0.2")));
    loop_.in_next_round([] {});
    loop_.run_round();
  };
  cancelled();  // opens the socket for searches
  const std::set<std::string> open = open_sockets();
  cancelled();
  EXPECT_EQ(open_sockets(), open);
  await(address("10.9.0.2"));
  EXPECT_EQ(open_sockets(), open);
}

TEST_P(NeighboursTest, NewsFromBeforeAWaitDoNotEndIt) {
  ASSERT_TRUE(learn("10.9.0.2"));
  ASSERT_TRUE(test::shell("ip neighbour del 10.9.0.2 dev v0"));
  await(address("10.9.0.2"));
  await(address("10.9.0.3"));
  ASSERT_TRUE(learn("10.9.0.3"));
  while (ends_.empty()) loop_.run_round();
  for (int round = 0; round < 3; ++round) loop_.in_next_round([] {}), loop_.run_round();
  EXPECT_EQ(neighbours_->waiting(), 1u);
}

// Any user's program may look for hosts that do not answer.
TEST_P(NeighboursTest, ManyThatDoNotAnswerDoNotKeepAnotherFromBeingSearchedFor) {
  for (int i = 0; i < 1000; ++i) neighbours_->cancel(await(address(i % 2 == 0 ? "10.9.0.2" : "10.9.0.3")));
  await(address("10.9.0.4"));
  EXPECT_TRUE(is_searched_for("10.9.0.4"));
}

TEST_P(NeighboursTest, OneThatTheKernelDoesNotSearchForIsTriedAgainInATurnOfItsUser) {
  ASSERT_TRUE(test::shell("ip link set v0 down"));
  for (int i = 0; i < 2; ++i) await(address("10.9.0.2"));
  ASSERT_TRUE(test::shell("ip link set v0 up"));
  bool is_late = false;
  loop_.at(MonotonicClock::now() + std::chrono::seconds(20), [&] { is_late = true; });
  while (!is_searched_for("10.9.0.2") && !is_late) {
    const bool has_turn = loop_.has_work_for(::geteuid());
    loop_.run_round();
    EXPECT_TRUE(has_turn || !is_searched_for("10.9.0.2"));
  }
  EXPECT_FALSE(is_late);
  EXPECT_EQ(neighbours_->waiting(), 2u);
}

INSTANTIATE_TEST_SUITE_P(By, NeighboursTest,
                         ::testing::Values(NeighbourQuery::kByNetlink, NeighbourQuery::kByDatagram),
                         [](const auto& instance) {
                           return instance.param == NeighbourQuery::kByNetlink ? "Netlink" : "Datagram";
                         });

// libstdc++'s std::hash of these two addresses is the same. Anybody can compute such pairs.
TEST(NeighbourKey, DiffersForAddressesWithTheSameHash) {
  const CmAddress first = address("fd00:77::1", AF_INET6);
  const CmAddress second = address("fe80::df8e:6e6c:c74c:a1b9", AF_INET6);
  EXPECT_NE(key_of(2, first), key_of(2, second));
  EXPECT_NE(key_of(2, first), key_of(3, first));
  EXPECT_EQ(key_of(2, first), key_of(2, first));
}

}  // namespace
}  // namespace verbena::agent
