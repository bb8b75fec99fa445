// SPDX-License-Identifier: Apache-2.0
// The clients that the agent accepts, and their order.
#include "agent/sessions/client_table.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/sessions/raw_connection.h"
#include "base/lingering_socket.h"
#include "base/socket_option.h"

namespace verbena::agent {
namespace {

using control::AgentAddress;
using test::RawConnection;

// A table that listens on two paths. Records the path by which each accepted client came.
class ClientTableTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    std::vector<UniqueFd> sockets;
    sockets.push_back(bound_to(first_));
    sockets.push_back(bound_to(second_));
    ASSERT_TRUE(table_.listen(std::move(sockets)));
  }
  ~ClientTableTest() override {
    table_.clear();
    for (const std::string& path : {first_, second_}) std::filesystem::remove(path);
  }

  static UniqueFd bound_to(const std::string& path) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const AgentAddress address{std::string_view(path)};
    EXPECT_EQ(::bind(socket.get(), address.address(), address.length), 0);
    return socket;
  }
  static bool refuses_descriptors_here() {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    pass_descriptors(socket.get(), false);
    return refuses_descriptors(socket.get());
  }
  void run_rounds() {
    loop_.in_next_round([] {});
    loop_.run_round();
  }
  // Returns the path by which the client of this accepted socket came.
  static std::string name_of(int socket) {
    sockaddr_un name{};
    socklen_t length = sizeof name;
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length), 0);
    return name.sun_path;
  }

  const std::string first_ = "/tmp/client-table-a-" + std::to_string(::getpid());
  const std::string second_ = "/tmp/client-table-b-" + std::to_string(::getpid());
  std::vector<std::string> came_by_;
  std::vector<UniqueFd> accepted_;
  EventLoop loop_{std::chrono::hours(1)};  // all users' work is done in one round
  ClientSockets sockets_{loop_, {.all = 16, .reserve = 4}, ::geteuid()};
  AgentHost agent_;
  ClientTable table_{loop_, sockets_, ClientTable::room_with(1024), agent_,
                     [this](uint64_t, UniqueFd socket, const ucred&, const QuotaShare&) {
                       came_by_.push_back(name_of(socket.get()));
                       accepted_.push_back(std::move(socket));
                       return std::unique_ptr<Session>();
                     }};
};

TEST_F(ClientTableTest, TakesItsNamesInTurns) {
  std::vector<RawConnection> crowd;
  for (int i = 0; i < 20; ++i) crowd.emplace_back(AgentAddress(std::string_view(first_)));
  const RawConnection other{AgentAddress(std::string_view(second_))};
  EXPECT_TRUE(table_.accept_one());
  EXPECT_TRUE(table_.accept_one());
  while (table_.accept_one()) {
  }
  EXPECT_TRUE(came_by_.empty()) << "a session begins in its user's turn";
  EXPECT_EQ(table_.size(), 21u) << "but counts";
  run_rounds();
  EXPECT_EQ(came_by_.size(), 21u);
  EXPECT_EQ(std::vector(came_by_.begin(), came_by_.begin() + 2), (std::vector{first_, second_}));
}

// Others may connect faster than the agent accepts.
TEST_F(ClientTableTest, AcceptsALimitedNumberAtATime) {
  std::vector<RawConnection> crowd;
  for (int i = 0; i < 40; ++i) crowd.emplace_back(AgentAddress(std::string_view(first_)));
  EXPECT_TRUE(table_.accept_some());
  EXPECT_EQ(table_.size(), 16u);
  while (table_.accept_some()) {
  }
  EXPECT_EQ(table_.size(), 40u);
}

TEST(ClientTable, HasRoomForAsManyAsThereAreDescriptorsFor) {
  EXPECT_EQ(ClientTable::room_with(1 << 20).all, 8192u);
  const Quota::Size few = ClientTable::room_with(256);
  EXPECT_LE(few.all * 3, 128u);
  EXPECT_GE(few.all, 40u);
  EXPECT_GT(few.reserve, 0u);
}

// The process sees the socket file all the same, because it shares the file system.
TEST_F(ClientTableTest, RefusesAProcessOfAnotherNetworkNamespace) {
  {
    const test::NetworkNamespace elsewhere;
    ASSERT_TRUE(elsewhere.entered());
    RawConnection stranger{AgentAddress(std::string_view(first_))};
    ASSERT_TRUE(stranger.connected());
    EXPECT_TRUE(table_.accept_one());
    EXPECT_TRUE(stranger.is_hung_up());
  }
  run_rounds();
  EXPECT_TRUE(came_by_.empty());
  const RawConnection neighbour{AgentAddress(std::string_view(first_))};
  EXPECT_TRUE(table_.accept_one());
  run_rounds();
  EXPECT_EQ(came_by_, std::vector{first_});
}

// Sockets that are refused must not become a store of descriptors.
TEST_F(ClientTableTest, TakesNoDescriptorsBeforeASessionOnceAUserHasTooMany) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int file = null.get();
  const auto sends = [&](RawConnection& client) {
    const std::array<std::byte, 1> word{};
    return client.send(word, {&file, 1});
  };
  const auto connect_and_send = [&] {
    RawConnection client{AgentAddress(std::string_view(first_))};
    const bool sent = sends(client);
    EXPECT_TRUE(table_.accept_one());
    return sent;
  };
  if (!refuses_descriptors_here()) GTEST_SKIP() << "needs Linux 6.16";
  EXPECT_TRUE(connect_and_send());
  table_.expect_no_early_descriptors();
  EXPECT_TRUE(connect_and_send()) << "nobody was refused";
  {
    std::vector<QuotaShare> all;
    while (sockets_.closer().allows(::geteuid())) all.push_back(sockets_.closer().count(::geteuid()));
    const test::NetworkNamespace elsewhere;  // so that the client is refused
    ASSERT_TRUE(elsewhere.entered());
    EXPECT_TRUE(connect_and_send());
  }
  EXPECT_FALSE(connect_and_send());
  RawConnection accepted{AgentAddress(std::string_view(first_))};
  EXPECT_TRUE(table_.accept_one());
  run_rounds();
  EXPECT_TRUE(sends(accepted)) << "a session takes them";
}

// A user may connect while the agent ends, when nobody accepts any more.
TEST_F(ClientTableTest, DoesNotWaitForDescriptorsOfAClientWhenItStops) {
  test::LingeringSocket lingering;
  {
    RawConnection client{AgentAddress(std::string_view(first_))};
    const std::array<std::byte, 1> word{};
    const int file = lingering.fd();
    ASSERT_TRUE(client.send(word, {&file, 1}));
  }
  lingering.reset();
  const RawConnection other{AgentAddress(std::string_view(second_))};
  table_.stop_listening();
  EXPECT_TRUE(test::becomes_true([] { return test::is_asleep("verbena-listen"); }));
  for (const std::string& path : {first_, second_}) {
    EXPECT_FALSE(RawConnection{AgentAddress(std::string_view(path))}.connected());
  }
  char byte;
  EXPECT_EQ(::recv(other.fd(), &byte, sizeof byte, 0), -1) << "its connection ends";
  EXPECT_TRUE(test::is_asleep("verbena-listen")) << "the other socket is still being closed";
  lingering.cut_short();
}

TEST_F(ClientTableTest, LeavesAServiceManagerItsSocket) {
  table_.stop_listening();
  std::filesystem::remove(first_);
  const UniqueFd managers = bound_to(first_);
  ASSERT_EQ(::listen(managers.get(), 16), 0);
  std::vector<UniqueFd> passed;
  passed.emplace_back(::fcntl(managers.get(), F_DUPFD_CLOEXEC, 0));
  ASSERT_TRUE(table_.listen(std::move(passed)));
  table_.stop_listening();
  EXPECT_TRUE(RawConnection{AgentAddress(std::string_view(first_))}.connected());
}

}  // namespace
}  // namespace verbena::agent
