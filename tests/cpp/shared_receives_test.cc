// SPDX-License-Identifier: Apache-2.0
// Connections that share one receive queue: of plain messages, and of remote procedure calls.
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <verbena/async/join.hpp>
#include <verbena/rpc.hpp>

#include "cpp/code_of.h"

namespace verbena {
namespace {

using testing::code_of;

using namespace std::chrono_literals;

// Few receives, so that a test takes each of them many times.
constexpr std::uint32_t kSpare = 8;
constexpr std::uint32_t kSharers = 6;
constexpr connection_options kShared{
    .message_size = 512, .receives = 6, .shared_receives = kSpare, .max_sharers = kSharers};
constexpr int kReceives = kSpare + 2 * kSharers;

class SharedReceives : public ::testing::Test {
 protected:
  void listen(const connection_options& options = kShared) {
    listener_.emplace(io_, "127.0.0.1:0", options);
    address_ = "127.0.0.1:" + std::to_string(listener_->port());
  }
  // Connects, and returns both ends: the client's is first.
  task<std::pair<connection, connection>> pair() {
    auto near = verbena::connect(io_, address_);
    auto [made, accepted] = co_await when_all(std::move(near), listener_->accept());
    co_return std::pair(std::move(made), std::move(accepted));
  }

  loop io_;
  std::optional<listener> listener_;
  std::string address_;
};

TEST_F(SharedReceives, CarryMoreMessagesThanThereAreReceives) {
  listen();
  io_.run([this](loop&) -> task<> {
    std::vector<std::pair<connection, connection>> all;
    for (std::uint32_t i = 0; i < kSharers; ++i) all.push_back(co_await pair());
    for (int round = 0; round < 5 * kReceives; ++round) {
      for (auto& [near, far] : all) {
        const std::string text = std::to_string(round);
        co_await near.send(text);
        EXPECT_EQ((co_await far.receive()).text(), text);
      }
    }
  });
}

// The message of each connection reaches its own far end.
TEST_F(SharedReceives, BelongToTheConnectionOfTheirMessage) {
  listen();
  io_.run([this](loop&) -> task<> {
    std::vector<std::pair<connection, connection>> all;
    for (std::uint32_t i = 0; i < kSharers; ++i) all.push_back(co_await pair());
    for (std::uint32_t i = 0; i < kSharers; ++i) co_await all[i].first.send_value(i);
    for (std::uint32_t i = kSharers; i-- > 0;)
      EXPECT_EQ(co_await all[i].second.receive_value<std::uint32_t>(), i);
  });
}

TEST_F(SharedReceives, RefuseFurtherConnectionsUntilOneEnds) {
  listen();
  io_.run([this](loop&) -> task<> {
    std::vector<std::pair<connection, connection>> all;
    for (std::uint32_t i = 0; i < kSharers; ++i) all.push_back(co_await pair());
    EXPECT_EQ(co_await code_of(verbena::connect(io_, address_)), ECONNREFUSED);
    co_await when_all(all.back().first.close(), all.back().second.close());
    all.pop_back();
    all.push_back(co_await pair());
    co_await all.back().first.send("there is room again");
    EXPECT_EQ((co_await all.back().second.receive()).text(), "there is room again");
  });
}

// A greedy client sends as much as it may, and nobody reads it. All others go on.
TEST_F(SharedReceives, AreNotAllTakenByOneConnection) {
  listen();
  io_.run([this](loop&) -> task<> {
    auto greedy = co_await pair();
    std::vector<pending<void>> sent;
    for (int i = 0; i < 5 * kReceives; ++i) sent.push_back(greedy.first.send("more"));
    std::vector<std::pair<connection, connection>> all;
    for (std::uint32_t i = 1; i < kSharers; ++i) all.push_back(co_await pair());
    for (int round = 0; round < 20; ++round) {
      for (auto& [near, far] : all) {
        co_await near.send("fair");
        EXPECT_EQ((co_await far.receive()).text(), "fair");
      }
    }
    for (auto& each : sent) {  // and it goes on as soon as it is read
      EXPECT_EQ((co_await greedy.second.receive()).text(), "more");
      co_await each;
    }
  });
}

// The program keeps messages, and releases them after the connection's end.
TEST_F(SharedReceives, ComeBackFromTheProgramAfterTheConnectionsEnd) {
  listen();
  io_.run([this](loop&) -> task<> {
    for (int round = 0; round < 2 * kReceives; ++round) {
      std::vector<buffer> kept;
      {
        auto both = co_await pair();
        for (int i = 0; i < 3; ++i) {
          co_await both.first.send("kept");
          kept.push_back(co_await both.second.receive());
        }
        co_await both.first.close();
      }
      for (const buffer& each : kept) EXPECT_EQ(each.text(), "kept");
    }
  });
}

// Clients end while their messages are under way: in the network, in the queue, and with the program. Each
// receive that was lost would be missing in a later round.
TEST_F(SharedReceives, ComeBackFromConnectionsThatDie) {
  listen();
  io_.run([this](loop&) -> task<> {
    for (int round = 0; round < 5 * kReceives; ++round) {
      auto both = co_await pair();
      std::vector<pending<void>> sent;
      for (int i = 0; i < 6; ++i) sent.push_back(both.first.send(std::string(500, 'x')));
      for (int i = 0; i < round % 7; ++i) co_await io_.yield();
      both.first.disconnect();
      if (round % 3 == 0) {
        while (const buffer message = co_await both.second.receive()) EXPECT_EQ(message.size(), 500U);
      }
    }
    auto last = co_await pair();
    co_await last.first.send("there is room");
    EXPECT_EQ((co_await last.second.receive()).text(), "there is room");
  });
}

class SharedCalls : public ::testing::Test {
 protected:
  SharedCalls() {
    methods_.on<"echo">([](std::string_view text) { return rpc::reply(text); });
    methods_.on<"count">([this](std::string_view caller) {
      ++runs_[std::string(caller)];
      return rpc::reply();
    });
    methods_.on<"never">([this](std::string_view) -> task<rpc::reply> {
      ++runs_["never"];
      co_await io_.sleep(1h);
      co_return "unreachable";
    });
  }
  void serve(const rpc::server_options& options) {
    server_.emplace(io_, "127.0.0.1:0", methods_, options);
    address_ = "127.0.0.1:" + std::to_string(server_->port());
  }
  task<> count(int number, int calls) {
    rpc::client client = co_await rpc::connect(io_, address_);
    for (int i = 0; i < calls; ++i) co_await client.call<"count">(std::to_string(number));
    co_await client.close();
  }
  template <class Done>
  task<> until(Done done) {
    while (!done()) co_await io_.yield();
  }

  loop io_;
  rpc::service methods_;
  std::optional<rpc::server> server_;
  std::string address_;
  std::map<std::string, int> runs_;
};

TEST_F(SharedCalls, ServeManyClientsWithFewReceives) {
  serve({.connection = {.message_size = 1024, .shared_receives = 16, .max_sharers = 100}});
  io_.run([this](loop&) -> task<> {
    std::vector<task<>> all;
    for (int i = 0; i < 100; ++i) all.push_back(count(i, 20));
    co_await when_all(std::move(all));
    co_await until([this] { return server_->clients() == 0; });
  });
  EXPECT_EQ(runs_.size(), 100U);
  for (const auto& [caller, number] : runs_) EXPECT_EQ(number, 20) << caller;
}

// The greedy client makes many calls at once, and reads no reply: its loop does not turn.
TEST_F(SharedCalls, ServeOthersBesideAGreedyClient) {
  serve({.max_calls = 100'000, .connection = {.shared_receives = 16, .max_sharers = 20}});
  loop other;
  other.run([&](loop&) -> task<> {
    std::optional<rpc::client> greedy;
    bool has_ended = false;
    io_.spawn([&](loop&) -> task<> { co_await until([&] { return has_ended; }); });
    const auto drive = [&]() -> task<> {
      while (!has_ended) {
        io_.turn();
        co_await other.yield();
      }
    };
    const auto work = [&]() -> task<> {
      greedy.emplace(co_await rpc::connect(other, address_));
      has_ended = true;
    };
    co_await when_all(drive(), work());
    std::vector<rpc::pending_call> calls;
    for (int i = 0; i < 20'000; ++i) calls.push_back(greedy->call<"echo">("a call of the greedy client"));
    for (int i = 0; i < 200; ++i) co_await other.yield();  // sends all that it may
    io_.run([this](loop&) -> task<> {
      std::vector<task<>> all;
      for (int i = 0; i < 10; ++i) all.push_back(count(i, 50));
      co_await when_all(std::move(all));
    });
    has_ended = false;
    const auto rest = [&]() -> task<> {
      for (auto& each : calls) EXPECT_EQ(co_await each, "a call of the greedy client");
      has_ended = true;
    };
    co_await when_all(drive(), rest());
    greedy.reset();
  });
  for (const auto& [caller, number] : runs_) EXPECT_EQ(number, 50) << caller;
}

TEST_F(SharedCalls, EndOfServerEndsAllClients) {
  serve({.connection = {.shared_receives = 16, .max_sharers = 20}});
  io_.run([this](loop&) -> task<> {
    std::vector<rpc::client> clients;
    std::vector<rpc::pending_call> calls;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(co_await rpc::connect(io_, address_));
      calls.push_back(clients.back().call<"never">("x"));
    }
    co_await until([this] { return runs_["never"] == 20; });
    server_.reset();
    for (auto& each : calls) EXPECT_EQ(co_await code_of(std::move(each)), ECONNRESET);
    serve({.connection = {.shared_receives = 16, .max_sharers = 20}});  // the same receives
    co_await count(0, 10);
  });
  EXPECT_EQ(runs_["0"], 10);
}

}  // namespace
}  // namespace verbena
