// SPDX-License-Identifier: Apache-2.0
// Peers that answer no ARP keep nobody else waiting.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <verbena/cm.hpp>
#include <verbena/cm/datagrams.hpp>
#include <verbena/cm/route_search.hpp>

#include "base/silent_neighbours.h"
#include "cpp/code_of.h"

namespace verbena {
namespace {

using test::is_silent;
using test::searches;
using testing::code_of;

using namespace std::chrono_literals;

// A loop with a time of its own, which only the test moves.
class SilentPeers : public ::testing::Test {
 protected:
  SilentPeers() {
    time_ = time_point(1h);
    searches = 0;
    is_silent = true;
  }
  ~SilentPeers() override { is_silent = false; }

  // Takes turns until the condition holds.
  template <class Condition>
  void until(Condition holds) {
    while (!holds()) io_.turn();
  }
  // Takes turns until the condition holds. The time passes meanwhile, but no deadline of a connection does.
  template <class Condition>
  void while_time_passes(Condition holds) {
    for (const time_point end = time_ + 2s; !holds(); io_.turn()) time_ = std::min(time_ + 1ms, end);
  }

  static inline time_point time_;
  loop io_{{.now = [] { return time_; }}};
};

class SilentClients : public SilentPeers {
 protected:
  SilentClients() {
    io_.spawn([this](loop&) -> task<> {
      for (;;) accepted_.push_back(co_await listener_.accept());
    });
  }
  // Connects by the address, and stores the outcome.
  void connect_by(const std::string& host, const listener& there, int& outcome) {
    io_.spawn([this, where = host + ":" + std::to_string(there.port()), &outcome](loop&) -> task<> {
      outcome = co_await code_of(connect(io_, where));
    });
  }

  static constexpr int kNone = -1;
  listener listener_{io_, "[::]:0"};
  std::vector<connection> accepted_;
};

TEST_F(SilentClients, KeepNobodyElseWaiting) {
  int silent = kNone, other = kNone;
  connect_by("[::1]", listener_, silent);
  until([] { return searches != 0; });
  connect_by("127.0.0.1", listener_, other);
  until([&] { return other != kNone; });
  EXPECT_EQ(other, 0);
  EXPECT_EQ(silent, kNone);
}

TEST_F(SilentClients, AreAcceptedWhenTheyAnswer) {
  int outcome = kNone;
  connect_by("[::1]", listener_, outcome);
  until([] { return searches != 0; });
  is_silent = false;
  while_time_passes([&] { return outcome != kNone; });
  EXPECT_EQ(outcome, 0);
}

TEST_F(SilentClients, AreRefusedAfterASecond) {
  int outcome = kNone;
  connect_by("[::1]", listener_, outcome);
  until([] { return searches != 0; });
  while_time_passes([&] { return outcome != kNone; });
  EXPECT_EQ(outcome, ECONNREFUSED);
  EXPECT_TRUE(accepted_.empty());
}

TEST_F(SilentClients, AreRefusedForFurtherOnes) {
  listener few(io_, "[::]:0", {.max_handshakes = 2});
  std::vector<int> outcomes(3, kNone);
  for (int& each : outcomes) {
    const int before = searches;
    connect_by("[::1]", few, each);
    until([&] { return searches != before; });
  }
  until([&] { return outcomes[0] != kNone; });
  EXPECT_EQ(outcomes[0], ECONNREFUSED);
  is_silent = false;
  while_time_passes([&] { return outcomes[1] != kNone && outcomes[2] != kNone; });
  EXPECT_EQ(outcomes, (std::vector<int>{ECONNREFUSED, 0, 0}));
}

// A server, to which a client has sent a datagram.
class SilentSenders : public SilentPeers {
 protected:
  SilentSenders() {
    bool is_there = false;
    io_.spawn([this, &is_there](loop&) -> task<> {
      is_silent = false;
      const auto to = co_await client_.resolve("[::1]:" + std::to_string(server_.port()));
      is_silent = true;
      co_await client_.send(to, "hello");
      got_ = co_await server_.receive();
      is_there = true;
    });
    until([&] { return is_there; });
  }
  // Returns the errno of an answer, or 0.
  int answer(const std::string& text) {
    int outcome = -1;
    io_.spawn([this, text, &outcome](loop&) -> task<> {
      outcome = co_await code_of(server_.send(got_.from, text));
    });
    until([&] { return outcome != -1; });
    return outcome;
  }

  datagram_socket client_{io_, "[::1]:0"};
  datagram_socket server_{io_, "[::1]:0", {.sends = 4}};
  datagram got_;
};

TEST_F(SilentSenders, AreAnsweredWithoutWaiting) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(answer("an answer"), 0);
  EXPECT_EQ(searches, 4) << "further datagrams are dropped";
}

TEST_F(SilentSenders, GetTheirAnswersWhenTheyCanBeReached) {
  EXPECT_EQ(answer("first"), 0);
  EXPECT_EQ(answer("second"), 0);
  is_silent = false;
  std::vector<std::string> got;
  io_.spawn([this, &got](loop&) -> task<> {
    while (const datagram each = co_await client_.receive()) got.emplace_back(each.text());
  });
  while_time_passes([&] { return got.size() == 2; });
  EXPECT_EQ(got, (std::vector<std::string>{"first", "second"}));
}

TEST_F(SilentSenders, LoseTheirAnswersAfterASecond) {
  EXPECT_EQ(answer("lost"), 0);
  bool is_closed = false;
  io_.spawn([this, &is_closed](loop&) -> task<> {
    co_await server_.close();
    is_closed = true;
  });
  while_time_passes([&] { return is_closed; });
}

TEST_F(SilentSenders, HaveNoAddressForVerbs) {
  const auto code = [this] {
    try {
      got_.from.get();
      return 0;
    } catch (const exception& refused) {
      return refused.error().code();
    }
  };
  EXPECT_EQ(code(), EHOSTUNREACH);
  is_silent = false;
  EXPECT_EQ(code(), 0);
}

}  // namespace
}  // namespace verbena
