// SPDX-License-Identifier: Apache-2.0
// Clients that receive nothing keep clients of other hosts not waiting, and ends that are silent are not
// awaited for long. In simulated time.
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <verbena/rpc.hpp>

#include "cpp/code_of.h"
#include "cpp/simulated_network.h"

namespace verbena {
namespace {

using rpc::detail::kind;
using rpc::detail::record;
using testing::code_of;
using testing::SimulatedConnection;
using testing::SimulatedNetwork;
using testing::SimulatedRegion;
using testing::SimulatedWorld;

using namespace std::chrono_literals;

// A server with the methods "echo", "short", which makes 200 bytes for a message, "large", which makes 1000
// bytes to be READ, and "never", which does not end.
class RpcShares : public ::testing::Test {
 protected:
  using Client = rpc::basic_client<SimulatedNetwork>;

  RpcShares() {
    SimulatedWorld::reset_time();
    world_.begin(1, 100, 100);
    methods_.on<"echo">([](std::string_view text) { return rpc::reply(text); });
    methods_.on<"short">([this](std::string_view) {
      ++runs_;
      return rpc::reply(std::string(200, 'x'));
    });
    methods_.on<"large">([](std::string_view) { return rpc::reply(std::string(1000, 'x')); });
    methods_.on<"never">([this](std::string_view) -> task<rpc::reply> {
      co_await io_.sleep(1000h);
      co_return "unreachable";
    });
  }
  ~RpcShares() override {
    server_.reset();
    rude_.clear();
  }

  void serve(const rpc::server_options& options) { server_.emplace(io_, "anywhere", methods_, options); }
  template <class Work>
  void run(Work work) {
    bool is_done = false;
    io_.spawn([&](loop&) -> task<> {
      co_await work();
      is_done = true;
    });
    EXPECT_TRUE(world_.run_until([&] { return is_done; }));
  }
  // Connects from a host to the server, and makes these calls. Their replies are not fetched.
  task<> call_rudely(std::string host, std::vector<record> calls) {
    rude_.push_back(co_await SimulatedNetwork::connect(io_, std::move(host), {}));
    co_await rude_.back().receive();
    for (const record& each : calls) co_await send(rude_.back(), each);
  }
  static task<> send(SimulatedConnection& by, record one) {
    buffer message = by.make_buffer(size_of(one));
    put(one, message.data());
    co_await by.send(std::move(message));
  }
  static record call_of(std::string_view method, std::uint64_t number) {
    return {kind::call, 0, number, rpc::detail::number_of(method)};
  }
  // Connects from a host, and makes calls of "short". Receives none of their replies.
  task<> call_without_receiving(std::string host, std::uint64_t calls) {
    std::vector<record> all;
    for (std::uint64_t number = 0; number < calls; ++number) all.push_back(call_of("short", number));
    co_await call_rudely(std::move(host), std::move(all));
  }
  task<Client> connected(rpc::client_options options = {}) {
    const auto core = std::make_shared<Client::core>(io_, "other host", options);
    co_await core->connect();
    co_return Client(core);
  }
  // Calls from another host. Returns how long that takes.
  task<duration> time_of_call(std::string arguments) {
    Client client = co_await connected();
    const time_point begin = io_.now();
    EXPECT_EQ(co_await client.call("echo", arguments), arguments);
    co_return io_.now() - begin;
  }

  loop io_{{.now = SimulatedWorld::now}};
  SimulatedWorld& world_ = io_.service<SimulatedWorld>();
  rpc::service methods_;
  std::optional<rpc::basic_server<SimulatedNetwork>> server_;
  int runs_ = 0;  // of "short"
  std::vector<SimulatedConnection> rude_;
};

TEST_F(RpcShares, OfRepliesKeepHostsThatFetchFromWaiting) {
  serve({.max_all_replies = 10'000});
  run([this]() -> task<> {
    std::vector<record> calls;
    for (std::uint64_t number = 0; number < 10; ++number) calls.push_back(call_of("large", number));
    for (const char* const host : {"rude", "rude", "rude also", "rude also", "the third", "the third"})
      co_await call_rudely(host, calls);
    EXPECT_LT(co_await time_of_call("a call"), 10ms);
  });
}

TEST_F(RpcShares, OfArgumentsKeepOtherHostsFromWaiting) {
  serve({.max_all_arguments = 10'000});
  std::vector<SimulatedRegion> regions;
  run([&]() -> task<> {
    for (const char* const host : {"rude", "rude", "rude also", "rude also", "the third", "the third"}) {
      regions.emplace_back(world_, 4000);
      const remote_slice there = regions.back().remote();
      record one = call_of("never", 1);
      one.what = kind::large_call;
      one.payload = std::as_bytes(std::span(&there, 1));
      std::vector<record> calls{one};
      co_await call_rudely(host, std::move(calls));
    }
    EXPECT_LT(co_await time_of_call(std::string(4000, 'x')), 10ms);
  });
  server_.reset();
}

// The client fetches another reply in time, again and again.
TEST_F(RpcShares, EndWithAReplyThatIsNotFetched) {
  serve({});
  run([this]() -> task<> {
    std::vector<record> calls{call_of("large", 0), call_of("large", 1)};
    co_await call_rudely("rude", std::move(calls));
    SimulatedConnection& rude = rude_.back();
    const time_point begin = io_.now();
    try {
      for (std::uint64_t number = 1; number < 10; ++number) {
        co_await io_.sleep(20s);
        co_await send(rude, {kind::fetched, 0, number});
        co_await send(rude, call_of("large", number + 1));
      }
    } catch (const exception&) {  // the server has disconnected
    }
    const duration simulated = io_.now() - begin;
    EXPECT_LT(simulated, 41s);
    EXPECT_EQ(server_->clients(), 0U);
  });
}

// A client takes 16 messages without receiving them. The further ones wait for its credits.
TEST_F(RpcShares, CountRepliesThatWaitForCredits) {
  static constexpr int kConnections = 4, kCalls = 40, kTaken = 16, kMessagesOfAHost = 2 * 10'000 / 3 / 512;
  serve({.max_all_replies = 10'000});
  run([this]() -> task<> {
    for (int i = 0; i < kConnections; ++i) co_await call_without_receiving("rude", kCalls);
    co_await io_.sleep(1s);
    EXPECT_GE(runs_, kTaken);
    EXPECT_LE(runs_, kTaken + kMessagesOfAHost + kConnections);
    EXPECT_LT(co_await time_of_call("a call"), 10ms) << "of another host";
  });
}

TEST_F(RpcShares, LeaveAThirdToOtherHosts) {
  rpc::detail::reply_memory memory(9000);
  rpc::detail::reply_line first(io_, memory, 9000, "one"), second(io_, memory, 9000, "one");
  const auto fill = [](rpc::detail::reply_line& line) {
    int taken = 0;
    for (; line.has_room(); ++taken) line.take(1000);
    return taken;
  };
  EXPECT_EQ(fill(first), 6);
  EXPECT_FALSE(second.has_room()) << "it is of the same host";
  {
    rpc::detail::reply_line third(io_, memory, 9000, "other");
    EXPECT_EQ(fill(third), 2);
    rpc::detail::reply_line beyond(io_, memory, 9000, "yet another");
    third.take(5000);
    EXPECT_TRUE(beyond.has_room()) << "a host without any may always take some";
  }
  first.give_back(1000);
  EXPECT_TRUE(second.has_room());
  first.give_back(5000);
}

// If it waited there, each reply that anybody fetches would wake all its calls for nothing.
TEST_F(RpcShares, AreAwaitedOnlyWithRoomOfTheConnectionsOwn) {
  rpc::detail::reply_memory memory(9000);
  rpc::detail::reply_line full(io_, memory, 1000, "one");
  full.take(1000);
  run([&]() -> task<> {
    bool has_room = false;
    io_.spawn([&](loop&) -> task<> {
      co_await full.room();
      has_room = true;
    });
    co_await io_.sleep(1ms);
    EXPECT_FALSE(full.is_linked());
    full.give_back(1000);
    co_await io_.sleep(1ms);
    EXPECT_TRUE(has_room);
  });
}

class RpcPatience : public RpcShares {};

TEST_F(RpcPatience, EndsWithAReplyThatWaitsForCredits) {
  serve({});
  run([this]() -> task<> {
    const time_point begin = io_.now();
    co_await call_without_receiving("rude", 30);
    EXPECT_EQ(server_->clients(), 1U);
    while (server_->clients() != 0 && io_.now() - begin < 100s) co_await io_.sleep(1s);
    const duration simulated = io_.now() - begin;
    EXPECT_GE(simulated, 30s);
    EXPECT_LE(simulated, 62s);
  });
}

TEST_F(RpcPatience, DoesNotEndWithClientsThatReceive) {
  serve({});
  run([this]() -> task<> {
    Client client = co_await connected();
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ((co_await client.call("short", "")).size(), 200U);
      co_await io_.sleep(std::chrono::seconds(7 * i));
    }
    EXPECT_EQ(server_->clients(), 1U);
  });
}

TEST_F(RpcPatience, EndsTheCloseOfAClientWhoseServerDoesNotAnswer) {
  serve({});
  run([this]() -> task<> {
    Client client = co_await connected();
    auto endless = client.call("never", "");
    const time_point begin = io_.now();
    co_await client.close();
    const duration simulated = io_.now() - begin;
    EXPECT_LT(simulated, 31s);
    EXPECT_EQ(co_await code_of(std::move(endless)), ECONNRESET);
  });
}

TEST_F(RpcPatience, EndsTheCloseOfAClientWhoseServerIsGone) {
  serve({});
  run([this]() -> task<> {
    Client client = co_await connected({.reconnect = 1000h});
    server_.reset();
    auto repeated = client.call("echo", "", {.idempotent = true});
    const time_point begin = io_.now();
    co_await client.close();
    const duration simulated = io_.now() - begin;
    EXPECT_LT(simulated, 31s);
    EXPECT_EQ(co_await code_of(std::move(repeated)), ETIMEDOUT);
  });
}

TEST_F(RpcShares, AreFreeAfterAFailureForLackOfMemory) {
  serve({});
  run([this]() -> task<> {
    const auto made = std::make_shared<rpc::detail::link<SimulatedConnection>>(
        io_, co_await SimulatedNetwork::connect(io_, "other host", {}));
    const auto reason = co_await made->receive([](const record&) -> bool { throw std::bad_alloc(); });
    EXPECT_EQ(reason.value().code(), ENOMEM);
  });
}

}  // namespace
}  // namespace verbena
