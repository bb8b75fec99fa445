// SPDX-License-Identifier: Apache-2.0
// Remote procedure calls of the C++ API: results, failures, large data, deadlines, lost connections,
// shutdown.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
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

using rpc::detail::kind;
using rpc::detail::record;
using testing::code_of;

using namespace std::chrono_literals;

class Rpc : public ::testing::Test {
 protected:
  Rpc() {
    methods_.on<"echo">([this](std::string_view text) {
      ++runs_;
      return rpc::reply(text);
    });
    methods_.on<"later">([this](std::string_view text) -> task<rpc::reply> {
      const Presence here(waiting_);
      co_await io_.sleep(1ms);
      co_return rpc::reply(text);
    });
    methods_.on<"never">([this](std::string_view) -> task<rpc::reply> {
      const Presence here(waiting_);
      co_await io_.sleep(1h);
      co_return "unreachable";
    });
    methods_.on<"hold">([this](std::string_view, rpc::running_call& its) -> task<rpc::reply> {
      const Presence here(waiting_);
      holds_.push_back(its.hold());
      co_await io_.sleep(1h);
      co_return "unreachable";
    });
    methods_.on<"refuse">([](std::string_view why) { return rpc::reply::failure(EPERM, why); });
    methods_.on<"throw">(
        [](std::string_view why) -> rpc::reply { throw std::runtime_error(std::string(why)); });
    methods_.on<"repeat">([](std::string_view text) {
      std::string all;
      for (int i = 0; i < 1000; ++i) all += text;
      return rpc::reply(std::move(all));
    });
    serve();
  }
  // Counts the coroutines of a method that are alive.
  struct Presence {
    explicit Presence(int& all) : count(all) { ++count; }
    Presence(const Presence&) = delete;
    ~Presence() { --count; }
    int& count;
  };
  void serve(const std::string& where = "127.0.0.1:0") {
    server_.reset();
    server_.emplace(io_, where, methods_, options_);
    address_ = "127.0.0.1:" + std::to_string(server_->port());
  }
  task<rpc::client> connected(rpc::client_options options = {}) {
    return rpc::connect(io_, address_, options);
  }
  template <class Work>
  void run(Work work) {
    io_.run([this, &work](loop&) -> task<> {
      rpc::client client = co_await connected();
      co_await work(client);
      co_await client.close();
    });
  }
  task<> echo_some(int number) {
    rpc::client client = co_await connected();
    for (int round = 0; round < 20; ++round) {
      const std::string text = std::to_string(number * 100 + round);
      EXPECT_EQ(co_await client.call<"echo">(text), text);
    }
  }
  task<> until_none_waits() {
    while (waiting_ != 0) co_await io_.yield();
  }

  // A connection to the server that may send any records. It has received the window.
  task<connection> rude_connection() {
    connection made = co_await verbena::connect(io_, address_);
    co_await made.receive();
    co_return made;
  }
  static void add(std::string& text, const record& one) {
    text.resize(text.size() + size_of(one));
    put(one, reinterpret_cast<std::byte*>(text.data() + text.size() - size_of(one)));
  }
  // A message of records. (GCC 12 takes no std::initializer_list in a coroutine.)
  template <class... Records>
  static std::string text_of(const Records&... all) {
    std::string text;
    (add(text, all), ...);
    return text;
  }
  // A call whose arguments the server READs, and its cancellation.
  static std::string cancelled_call(std::uint64_t number, const remote_slice& arguments) {
    const auto bytes = std::as_bytes(std::span(&arguments, 1));
    return text_of(record{kind::large_call, 0, number, rpc::detail::number_of("echo"), bytes},
                   record{kind::cancel, 0, number});
  }
  // Bytes that buffers of more than 64 KiB take in this process.
  std::size_t large_bytes() {
    return io_.service<detail::cm_service>().adapter_of(detail::only_device()).buffers().large_bytes();
  }

  loop io_;
  rpc::service methods_;
  rpc::server_options options_;
  std::optional<rpc::server> server_;
  std::string address_;
  int waiting_ = 0;
  int runs_ = 0;
  std::vector<std::shared_ptr<void>> holds_;
};

TEST_F(Rpc, ReturnsResults) {
  run([](rpc::client& client) -> task<> {
    EXPECT_EQ(co_await client.call<"echo">("hello"), "hello");
    EXPECT_EQ(co_await client.call<"echo">(""), "");
    EXPECT_EQ(co_await client.call<"later">("after a while"), "after a while");
    EXPECT_EQ(co_await client.call("echo", "by name"), "by name");
  });
}

TEST_F(Rpc, RunsManyCallsAtOnce) {
  run([](rpc::client& client) -> task<> {
    std::vector<rpc::pending_call> all;
    for (int i = 0; i < 5000; ++i) {
      const std::string text = std::to_string(i);
      all.push_back(i % 3 == 0 ? client.call<"later">(text) : client.call<"echo">(text));
    }
    int number = 0;
    for (auto& each : all) EXPECT_EQ(co_await each, std::to_string(number++));
  });
}

// Calls and replies are more than both ends keep on their way, and the replies are longer than the calls.
TEST_F(Rpc, ReadsRepliesWhileManyCallsWaitToBeSent) {
  methods_.on<"four times">([](std::string_view text) {
    std::string all;
    for (int i = 0; i < 4; ++i) all += text;
    return rpc::reply(std::move(all));
  });
  run([this](rpc::client& client) -> task<> {
    std::vector<rpc::pending_call> all;
    const std::string arguments(1000, 'x');
    for (int i = 0; i < 2000; ++i) all.push_back(client.call<"four times">(arguments, {.deadline = 20s}));
    for (auto& each : all) EXPECT_EQ((co_await each).size(), 4000U);
  });
}

TEST_F(Rpc, PassesFailuresOn) {
  run([](rpc::client& client) -> task<> {
    EXPECT_EQ(co_await code_of(client.call<"refuse">("no")), EPERM);
    EXPECT_EQ(co_await code_of(client.call<"throw">("broken")), EIO);
    EXPECT_EQ(co_await code_of(client.call<"unknown">("")), ENOSYS);
    try {
      co_await client.call<"refuse">("not today");
    } catch (const exception& thrown) {
      EXPECT_STREQ(thrown.what(), "the server says: not today: Operation not permitted (errno 1)");
    }
  });
}

TEST_F(Rpc, MovesLargeDataByRendezvous) {
  run([](rpc::client& client) -> task<> {
    std::string large(std::size_t{3} << 20, 'x');
    for (std::size_t i = 0; i < large.size(); i += 4096) large[i] = static_cast<char>('a' + i / 4096 % 26);
    EXPECT_EQ(co_await client.call<"echo">(large), large);
    EXPECT_EQ((co_await client.call<"repeat">("0123456789")).size(), 10'000U);
    for (std::size_t size = 3900; size < 4200; size += 13) {  // around the longest that fits into a record
      const std::string text(size, 's');
      EXPECT_EQ(co_await client.call<"echo">(text), text);
    }
  });
}

TEST_F(Rpc, RefusesArgumentsThatAreTooLarge) {
  options_.max_arguments = 10'000;
  serve();
  run([](rpc::client& client) -> task<> {
    EXPECT_EQ(co_await code_of(client.call<"echo">(std::string(10'001, 'x'))), EMSGSIZE);
    EXPECT_EQ(co_await code_of(client.call<"echo">(std::string(10'000, 'x'))), 0);
  });
}

// Neither adapters nor protobuf take lengths beyond 2 GiB, and casts would cut them.
TEST_F(Rpc, RefusesArgumentsOfAnyLengthThatIsClaimed) {
  options_.max_arguments = std::numeric_limits<std::size_t>::max();
  serve();
  io_.run([this](loop&) -> task<> {
    connection client = co_await rude_connection();
    std::uint64_t number = 0;
    for (const std::uint64_t size :
         {std::uint64_t{1} << 31, (std::uint64_t{1} << 32) + 8, ~std::uint64_t{0}}) {
      const remote_slice there{4096, size, 1, 0};
      co_await client.send(text_of(record{kind::large_call, 0, ++number, rpc::detail::number_of("echo"),
                                          std::as_bytes(std::span(&there, 1))}));
      const buffer answer = co_await client.receive();
      std::span<const std::byte> rest = answer.bytes();
      const auto one = rpc::detail::take(rest);
      EXPECT_TRUE(one && one->what == kind::failure && one->code == EMSGSIZE) << size;
    }
  });
}

TEST_F(Rpc, EndsCallsAtTheirDeadline) {
  run([this](rpc::client& client) -> task<> {
    EXPECT_EQ(co_await code_of(client.call<"never">("", {.deadline = 1ms})), ETIMEDOUT);
    co_await until_none_waits();  // the server's coroutine is destroyed, too
    EXPECT_EQ(co_await client.call<"echo">("goes on", {.deadline = 10s}), "goes on");
  });
}

TEST_F(Rpc, CancelsCallsThatNobodyAwaits) {
  run([this](rpc::client& client) -> task<> {
    {
      const auto forgotten = client.call<"never">("");
      const auto large = client.call<"never">(std::string(100'000, 'x'));
      while (waiting_ < 2) co_await io_.yield();
    }
    co_await until_none_waits();
    EXPECT_EQ(co_await client.call<"echo">("goes on"), "goes on");
  });
}

TEST_F(Rpc, LimitsTheCallsOfAClient) {
  options_.max_calls = 3;
  serve();
  run([this](rpc::client& client) -> task<> {
    std::vector<rpc::pending_call> all;
    for (int i = 0; i < 50; ++i) all.push_back(client.call<"later">("x"));
    int most = 0;
    for (auto& each : all) {
      most = std::max(most, waiting_);
      EXPECT_EQ(co_await each, "x");
    }
    EXPECT_LE(most, 3);
  });
}

TEST_F(Rpc, RepeatsIdempotentCallsOnly) {
  run([this](rpc::client& client) -> task<> {
    auto once = client.call<"never">("");
    auto again = client.call<"never">("", {.deadline = 10s, .idempotent = true});
    while (waiting_ < 2) co_await io_.yield();
    serve("127.0.0.1:" + std::to_string(server_->port()));
    EXPECT_EQ(co_await code_of(std::move(once)), ECONNRESET);
    while (waiting_ != 1) co_await io_.yield();  // the new server runs the other one
    EXPECT_EQ(co_await client.call<"echo">("goes on"), "goes on");
  });
  EXPECT_EQ(waiting_, 0);
}

// The server shares memory before a client is there. The client READs it over the connection of its calls.
TEST_F(Rpc, ReachesMemoryThatTheServerShares) {
  const shared<std::uint64_t> counter = server_->share<std::uint64_t>();
  *counter = 42;
  methods_.on<"where">([&](std::string_view) {
    const auto there = counter.remote();
    return rpc::reply(std::as_bytes(std::span(&there, 1)));
  });
  run([](rpc::client& client) -> task<> {
    const std::string answer = co_await client.call<"where">("");
    remote<std::uint64_t> there;
    EXPECT_EQ(answer.size(), sizeof there);
    std::memcpy(&there, answer.data(), sizeof there);
    EXPECT_EQ(co_await client.get()->fetch_add(there, 1), 42U);
    EXPECT_EQ(*co_await client.get()->read(there), 43U);
    EXPECT_EQ(co_await client.call<"echo">("goes on"), "goes on");
  });
}

TEST_F(Rpc, FailsWhereNoServerIs) {
  server_.reset();
  io_.run([this](loop&) -> task<> {
    try {
      co_await connected();
      ADD_FAILURE();
    } catch (const exception& thrown) {
      EXPECT_EQ(thrown.error().code(), ECONNREFUSED);
    }
  });
}

TEST_F(Rpc, LetsCallsEndWhenTheServerStops) {
  run([this](rpc::client& client) -> task<> {
    auto running = client.call<"later">("in time");
    while (waiting_ == 0) co_await io_.yield();
    co_await when_all(server_->stop(), [](rpc::pending_call call) -> task<> {
      EXPECT_EQ(co_await call, "in time");
    }(std::move(running)));
    EXPECT_EQ(server_->clients(), 0U);
  });
}

TEST_F(Rpc, StopsBeforeTheLoopHasBegun) {
  io_.run([this](loop&) -> task<> {
    serve();  // the loop has not resumed this server's coroutine yet
    co_await server_->stop();
    co_await io_.yield();
    EXPECT_EQ(server_->clients(), 0U);
  });
}

// The server refuses two calls while another one keeps it from its end. The next server runs only the one
// that may run twice.
TEST_F(Rpc, RepeatsIdempotentCallsThatAStoppingServerRefuses) {
  bool may_end = false;
  methods_.on<"held">([&](std::string_view) -> task<rpc::reply> {
    const Presence here(waiting_);
    while (!may_end) co_await io_.yield();
    co_return "in time";
  });
  run([&](rpc::client& client) -> task<> {
    auto running = client.call<"held">("");
    while (waiting_ == 0) co_await io_.yield();
    auto once = client.call<"echo">("once");
    auto again = client.call<"echo">("again", {.deadline = 10s, .idempotent = true});
    io_.spawn(server_->stop());
    EXPECT_EQ(co_await code_of(std::move(once)), ESHUTDOWN);
    may_end = true;
    EXPECT_EQ(co_await running, "in time");
    while (server_->clients() != 0) co_await io_.yield();
    EXPECT_EQ(runs_, 0);
    serve("127.0.0.1:" + std::to_string(server_->port()));
    EXPECT_EQ(co_await again, "again");
    EXPECT_EQ(runs_, 1);
  });
}

TEST_F(Rpc, ServesManyClients) {
  io_.run([this](loop&) -> task<> {
    std::vector<task<>> all;
    for (int i = 0; i < 50; ++i) {
      all.push_back(echo_some(i));
    }
    co_await when_all(std::move(all));
  });
  EXPECT_EQ(runs_, 1000);
}

// Sends what no client sends. The server ends that connection, and serves others.
TEST_F(Rpc, EndsConnectionsThatSendNonsense) {
  io_.run([this](loop&) -> task<> {
    for (const std::string& nonsense :
         {std::string("short"), std::string(24, '\xff'), std::string(64, '\0'),
          std::string("\x00\x00\x00\x00\x05\x00\x00\x00", 8) + std::string(16, '\0')}) {
      connection rude = co_await verbena::connect(io_, address_);
      co_await rude.send(nonsense);
      while (const buffer ignored = co_await rude.receive()) {
      }
      EXPECT_FALSE(rude.is_open());
    }
    rpc::client client = co_await connected();
    EXPECT_EQ(co_await client.call<"echo">("goes on"), "goes on");
  });
}

// The READ of a cancelled call goes on. Until its end the call is one of max_calls, and has its memory.
TEST_F(Rpc, CountsCancelledCallsUntilTheirReadHasEnded) {
  options_.max_calls = 4;
  serve();
  io_.run([this](loop&) -> task<> {
    std::size_t most = 0;
    {
      connection rude = co_await rude_connection();
      const region arguments = rude.share(std::size_t{1} << 20, access::remote_read);
      std::string calls;
      for (std::uint64_t i = 0; i < 100; ++i) calls += cancelled_call(i, arguments.remote());
      const auto sent = rude.send(calls);
      while (rude.is_open()) {
        most = std::max(most, large_bytes());
        co_await io_.yield();
      }
      co_await rude.close();
    }
    EXPECT_LE(most, (std::size_t{4} << 20) + detail::buffer_pool::kMaxSpare);
    while (server_->clients() != 0) co_await io_.yield();
    EXPECT_LE(large_bytes(), detail::buffer_pool::kMaxSpare);
    EXPECT_EQ(runs_, 0);
  });
}

// A client may free the memory of its arguments as soon as the answer has come.
TEST_F(Rpc, AnswersCancellationsAfterTheRead) {
  io_.run([this](loop&) -> task<> {
    connection client = co_await rude_connection();
    for (std::uint64_t number = 0; number < 50; ++number) {
      const region arguments = client.share(std::size_t{4} << 20, access::remote_read);
      co_await client.send(cancelled_call(number, arguments.remote()));
      const buffer answer = co_await client.receive();
      std::span<const std::byte> rest = answer.bytes();
      const auto one = rpc::detail::take(rest);
      EXPECT_TRUE(one && one->what == kind::failure && one->call == number && one->code == ECANCELED);
    }
    EXPECT_TRUE(client.is_open());
    EXPECT_EQ(runs_, 0);
  });
}

TEST_F(Rpc, CountsCancelledCallsWhileTheyAreHeld) {
  options_.max_calls = 1;
  serve();
  run([this](rpc::client& client) -> task<> {
    {
      const auto forgotten = client.call<"hold">("");
      while (waiting_ == 0) co_await io_.yield();
    }
    co_await until_none_waits();
    auto next = client.call<"echo">("goes on");
    for (int i = 0; i < 200; ++i) co_await io_.yield();
    EXPECT_EQ(runs_, 0);
    holds_.clear();
    EXPECT_EQ(co_await next, "goes on");
  });
}

// Holds may outlive the client, the server and their calls.
TEST_F(Rpc, MayHoldCallsThatHaveEnded) {
  io_.run([this](loop&) -> task<> {
    {
      rpc::client client = co_await connected();
      const auto cut_off = client.call<"hold">("");
      const auto other = client.call<"hold">("");
      while (waiting_ < 2) co_await io_.yield();
    }
    while (server_->clients() != 0) co_await io_.yield();
  });
  EXPECT_EQ(waiting_, 0);
  holds_.pop_back();
  server_.reset();
}

TEST_F(Rpc, LimitsTheBytesOfArguments) {
  options_.max_client_arguments = 250'000;
  options_.max_all_arguments = 450'000;
  serve();
  const auto work = [this](int clients, int expected) -> task<> {
    std::vector<rpc::client> all;
    std::vector<rpc::pending_call> calls;
    for (int i = 0; i < clients; ++i) {
      all.push_back(co_await connected());
      for (int j = 0; j < 10; ++j) calls.push_back(all.back().call<"never">(std::string(100'000, 'x')));
    }
    while (waiting_ < expected) co_await io_.yield();
    for (int i = 0; i < 200; ++i) co_await io_.yield();
    EXPECT_EQ(waiting_, expected);
    calls.clear();
    co_await until_none_waits();
    EXPECT_EQ((co_await all.back().call<"echo">(std::string(100'000, 'x'))).size(), 100'000U);
  };
  io_.run(work(1, 2));
  io_.run(work(2, 3));  // of one host, which gets two thirds
  io_.run(work(3, 3));
}

TEST_F(Rpc, RunsLongCallsAlone) {
  options_.max_client_arguments = options_.max_all_arguments = 1000;
  serve();
  run([this](rpc::client& client) -> task<> {
    std::vector<rpc::pending_call> all;
    for (int i = 0; i < 5; ++i) all.push_back(client.call<"later">(std::string(100'000, 'x')));
    {
      const auto waits = client.call<"later">(std::string(100'000, 'x'));
      const auto waits_also = client.call<"later">(std::string(5'000, 'x'));
    }
    all.push_back(client.call<"later">(std::string(100'000, 'y')));
    for (auto& each : all) {
      EXPECT_EQ((co_await each).size(), 100'000U);
      EXPECT_LE(waiting_, 1);
    }
  });
}

// Each large reply takes memory of the client.
// A client that calls and does not fetch: its next calls wait, and it loses its connection.
TEST_F(Rpc, LimitsTheRepliesThatAClientDoesNotFetch) {
  options_.max_client_replies = 100'000;
  options_.patience = 50ms;
  serve();
  io_.run([this](loop&) -> task<> {
    connection rude = co_await rude_connection();
    constexpr std::uint64_t kCalls = 20;
    const std::string arguments(100, 'x');  // "repeat" makes 100,000 bytes of it
    for (std::uint64_t number = 1; number <= kCalls; ++number) {
      co_await rude.send(text_of(
          record{kind::call, 0, number, rpc::detail::number_of("repeat"), rpc::detail::bytes_of(arguments)}));
    }
    int replies = 0;
    while (const buffer message = co_await rude.receive()) ++replies;
    EXPECT_EQ(replies, 1) << "and then the server disconnects";
  });
}

// A message of a client has many calls, and each reply is as long as half a message. The client receives none
// of them.
TEST_F(Rpc, RunsFewCallsOfAClientThatDoesNotReceive) {
  options_.patience = 50ms;
  serve();
  methods_.on<"long">([this](std::string_view) {
    ++runs_;
    return rpc::reply(std::string(32'000, 'x'));
  });
  io_.run([this](loop&) -> task<> {
    connection rude = co_await verbena::connect(io_, address_, {.message_size = 65'536, .receives = 2});
    std::string calls;
    for (std::uint64_t i = 0; i < 300; ++i) add(calls, {kind::call, 0, i, rpc::detail::number_of("long")});
    co_await rude.send(calls);
    while (rude.is_open()) co_await io_.yield();
    EXPECT_GT(runs_, 0);
    EXPECT_LE(runs_, 25);
  });
}

TEST_F(Rpc, GoesOnWhenRepliesAreFetched) {
  options_.max_client_replies = 100'000;
  serve();
  run([this](rpc::client& client) -> task<> {
    std::vector<task<std::string>> calls;
    const auto call = [&]() -> task<std::string> {
      co_return co_await client.call<"repeat">(std::string(100, 'x'));
    };
    for (int i = 0; i < 50; ++i) calls.push_back(call());
    for (const std::string& each : co_await when_all(std::move(calls))) EXPECT_EQ(each.size(), 100'000U);
  });
}

TEST_F(Rpc, StopsAlthoughAClientDoesNotFetchItsReply) {
  options_.patience = 50ms;
  serve();
  io_.run([this](loop&) -> task<> {
    connection rude = co_await rude_connection();
    const std::string arguments(100, 'x');
    co_await rude.send(text_of(
        record{kind::call, 0, 1, rpc::detail::number_of("repeat"), rpc::detail::bytes_of(arguments)}));
    co_await rude.receive();
    co_await server_->stop();
    EXPECT_EQ(server_->clients(), 0U);
  });
}

TEST_F(Rpc, StopsAlthoughACallDoesNotEnd) {
  options_.patience = 50ms;
  serve();
  io_.run([this](loop&) -> task<> {
    rpc::client client = co_await connected();
    auto endless = client.call<"never">("");
    while (waiting_ == 0) co_await io_.yield();
    co_await server_->stop();
    EXPECT_EQ(waiting_, 0);
    EXPECT_EQ(co_await code_of(std::move(endless)), ECONNRESET);
  });
}

TEST_F(Rpc, ClientTakesOneReplyForEachCall) {
  listener rude(io_, "127.0.0.1:0");
  address_ = "127.0.0.1:" + std::to_string(rude.port());
  for (const kind second : {kind::large_reply, kind::reply}) {
    io_.run([&](loop&) -> task<> {
      const auto serve_twice = [&]() -> task<> {
        connection peer = co_await rude.accept();
        co_await peer.send(text_of(record{kind::window, 0, 10}));
        const buffer message = co_await peer.receive();
        std::span<const std::byte> rest = message.bytes();
        const auto call = rpc::detail::take(rest);
        const region result = peer.share(std::size_t{1} << 20, access::remote_read);
        const remote_slice there = result.remote();
        const auto bytes = std::as_bytes(std::span(&there, 1));
        co_await peer.send(text_of(record{kind::large_reply, 0, call->call, 0, bytes},
                                   record{second, 0, call->call, 0, bytes}));
        while (const buffer ignored = co_await peer.receive()) {
        }
      };
      const auto call = [&]() -> task<> {
        rpc::client client = co_await connected();
        EXPECT_EQ(co_await code_of(client.call<"echo">("")), EPROTO);
      };
      co_await when_all(serve_twice(), call());
    });
  }
}

TEST_F(Rpc, ClientRefusesRepliesOfAnyLengthThatIsClaimed) {
  listener rude(io_, "127.0.0.1:0");
  address_ = "127.0.0.1:" + std::to_string(rude.port());
  io_.run([&](loop&) -> task<> {
    const auto serve_once = [&]() -> task<> {
      connection peer = co_await rude.accept();
      co_await peer.send(text_of(record{kind::window, 0, 10}));
      const buffer message = co_await peer.receive();
      std::span<const std::byte> rest = message.bytes();
      const auto call = rpc::detail::take(rest);
      const remote_slice there{4096, ~std::uint64_t{0}, 1, 0};
      co_await peer.send(
          text_of(record{kind::large_reply, 0, call->call, 0, std::as_bytes(std::span(&there, 1))}));
      while (const buffer ignored = co_await peer.receive()) {
      }
    };
    const auto call = [&]() -> task<> {
      rpc::client client = co_await connected({.max_reply = std::numeric_limits<std::size_t>::max()});
      EXPECT_EQ(co_await code_of(client.call<"echo">("")), EMSGSIZE);
    };
    co_await when_all(serve_once(), call());
  });
}

TEST_F(Rpc, RefusesASecondMethodOfOneName) {
  EXPECT_THROW(methods_.on<"echo">([](std::string_view) { return rpc::reply(); }), exception);
}

// The call's slot is answered, and used again, after the coroutine that awaited it has been destroyed.
TEST_F(Rpc, ForgetsCoroutinesThatAreDestroyed) {
  run([](rpc::client& client) -> task<> {
    for (int i = 0; i < 10; ++i) {
      {
        const task<> cut_off = [](rpc::client& of) -> task<> { co_await of.call<"later">("x"); }(client);
        cut_off.handle().resume();
      }
      const auto unawaited = client.call<"echo">("y");
      EXPECT_EQ(co_await client.call<"later">("z"), "z");
    }
  });
}

// Destroys client and calls after each number of turns: wherever their coroutines are suspended.
TEST_F(Rpc, MayBeDestroyedAtAnySuspension) {
  const auto work = [this]() -> task<> {
    rpc::client client = co_await connected();
    const std::string large(20'000, 'x');
    const auto first = client.call<"never">(large);
    auto second = client.call<"later">(large);
    auto third = client.call<"echo">(large, {.deadline = 1s, .idempotent = true});
    co_await second;
    co_await third;
    co_await client.call<"echo">("small");
  };
  bool has_ended = false;
  for (int turns = 0; !has_ended && turns < 5000; turns += 1 + turns / 50) {
    const task<> cut_off = work();
    cut_off.handle().resume();
    for (int i = 0; i < turns && !cut_off.done(); ++i) io_.turn();
    has_ended = cut_off.done();
  }
  io_.run(work());
  io_.run(until_none_waits());
}

}  // namespace
}  // namespace verbena
