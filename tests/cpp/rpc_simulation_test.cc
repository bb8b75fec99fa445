// SPDX-License-Identifier: Apache-2.0
// Thousands of clients of remote procedure calls in simulated time, on one shared receive queue. They
// connect, call, cancel, let deadlines pass, disconnect, die at any step, and come back. The code of clients
// and of the server is the real one, and so are the credits and the shares; only the network is simulated.
//
// VERBENA_SEED=n runs that seed only.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <verbena/rpc.hpp>

#include "cpp/simulated_network.h"

namespace verbena {
namespace {

using testing::SimulatedNetwork;
using testing::SimulatedProcesses;
using testing::SimulatedWorld;

using namespace std::chrono_literals;

using Client = rpc::basic_client<SimulatedNetwork>;
using Server = rpc::basic_server<SimulatedNetwork>;

#ifndef VERBENA_SIMULATED_CLIENTS
#define VERBENA_SIMULATED_CLIENTS 10'000
#endif
constexpr std::uint32_t kClients = VERBENA_SIMULATED_CLIENTS;

struct Options {
  std::uint64_t seed = 1;
  std::size_t clients = kClients;
  std::uint32_t spare = kClients / 5;
  std::uint32_t max_sharers = kClients / 10 * 9;  // less than the clients: some are refused at times
  duration arrival = 3ms;                         // all clients begin within this time
};

// The outcome of a call. Its number is its position.
struct Call {
  std::uint8_t runs = 0;
  bool is_idempotent = false;
  bool is_acknowledged = false;
};

// The clients, the server, and what they must hold to.
class Simulation {
 public:
  explicit Simulation(const Options& options) : options_(options), world_(io_.service<SimulatedWorld>()) {
    SimulatedWorld::reset_time();
    world_.begin(options.seed, options.max_sharers, options.spare);
    add_methods();
    server_.emplace(io_, "anywhere", methods_, rpc::server_options{.max_calls = 64, .max_arguments = 8000});
  }

  void run() {
    for (std::size_t i = 0; i < options_.clients; ++i) {
      processes_.emplace_back();
      world_.after(world_.random_time(options_.arrival), [this, i] { begin(i); });
    }
    EXPECT_TRUE(world_.run_until([this] { return finished_ == options_.clients; }))
        << "a client waits without end: " << finished_ << " have finished";
    bool has_stopped = false;
    io_.spawn([&](loop&) -> task<> {
      co_await server_->stop();
      has_stopped = true;
    });
    EXPECT_TRUE(world_.run_until([&] { return has_stopped; }));
    server_.reset();
    world_.run_until([] { return false; });  // the rest of what is under way
    check();
  }

  const std::deque<Call>& calls() const { return calls_; }
  const testing::SimulatedCounts& counts() const { return world_.counts; }
  std::size_t deaths() const { return deaths_; }
  std::size_t peak_clients() const { return peak_clients_; }
  std::uint32_t receives() const { return world_.receives; }
  duration longest() const { return longest_; }

 private:
  struct Process {
    std::optional<task<>> work;
    detail::waiter start;
    unsigned deaths = 0;
    unsigned lives = 0;  // counts also those that have ended in order
  };
  // Counts the coroutines of a method that are alive.
  struct Presence {
    explicit Presence(std::size_t& all) : count(all) { ++count; }
    Presence(const Presence&) = delete;
    ~Presence() { --count; }
    std::size_t& count;
  };
  static constexpr duration kPatience = 100ms;

  // ---- the server

  // Arguments and results begin with the number of the call, and may have padding.
  static std::uint64_t number_in(std::string_view text) {
    return std::strtoull(std::string(text.substr(0, 20)).c_str(), nullptr, 10);
  }
  static std::string padded(std::uint64_t number, std::size_t size) {
    std::string text = std::to_string(number) + " ";
    text.resize(std::max(size, text.size()), 'x');
    return text;
  }
  void count_run(std::string_view arguments) {
    ++calls_.at(number_in(arguments)).runs;
    peak_clients_ = std::max(peak_clients_, server_->clients());
  }
  void add_methods() {
    methods_.on<"echo">([this](std::string_view text) {
      count_run(text);
      return rpc::reply(text);
    });
    methods_.on<"later">([this](std::string_view text) -> task<rpc::reply> {
      const Presence here(running_);
      count_run(text);
      co_await io_.sleep(world_.random_time(3ms));
      co_return rpc::reply(text);
    });
    methods_.on<"never">([this](std::string_view text) -> task<rpc::reply> {
      const Presence here(running_);
      count_run(text);
      co_await io_.sleep(1h);
      co_return "unreachable";
    });
    methods_.on<"large">([this](std::string_view text) {
      count_run(text);
      return rpc::reply(padded(number_in(text), 3000));
    });
  }

  // ---- clients

  void begin(std::size_t which) {
    Process& own = processes_[which];
    own.work.emplace(live(which));
    own.start.suspend(own.work->handle());
    io_.wake(own.start);
    if (own.deaths < 2 && world_.chance(4))
      world_.after(world_.random_time(30ms), [this, which, life = own.lives] { kill(which, life); });
  }
  // The process ends wherever its coroutines are suspended. Another one takes its place.
  void kill(std::size_t which, unsigned life) {
    Process& own = processes_[which];
    if (own.lives != life) return;
    ++own.lives;
    ++own.deaths;
    ++deaths_;
    io_.service<SimulatedProcesses>().kill(std::to_string(which));
    own.work.reset();
    world_.after(world_.random_time(20ms), [this, which] { begin(which); });
  }
  task<> live(std::size_t which) {
    Process& own = processes_[which];
    for (int connections = world_.chance(3) ? 2 : 1; connections > 0;) {
      const bool is_served = co_await connect_and_call(which);
      if (is_served) --connections;
      co_await io_.sleep(world_.random_time(20ms));
    }
    ++own.lives;
    ++finished_;
  }
  // Returns false if there is no room for the client now.
  task<bool> connect_and_call(std::size_t which) {
    std::optional<Client> client;
    try {
      const auto core = std::make_shared<Client::core>(io_, std::to_string(which), rpc::client_options{});
      client.emplace(core);
      co_await core->connect();
    } catch (const exception& thrown) {
      EXPECT_TRUE(thrown.error().code() == ECONNREFUSED || thrown.error().code() == ECONNRESET);
      co_return false;
    }
    const bool is_greedy = which % 500 == 0;
    for (std::uint64_t calls = 2 + world_.random(4); calls > 0; --calls) {
      co_await call_once(*client, is_greedy);
      if (world_.chance(3)) co_await io_.sleep(world_.random_time(5ms));
    }
    if (world_.chance(2)) co_await client->close();
    co_return true;
  }
  task<> call_once(Client& client, bool is_greedy) {
    if (is_greedy) co_return co_await call_many(client, 500);
    switch (world_.random(8)) {
      case 0:
        co_return co_await expect_reply(client, "later", 16);
      case 1:
        co_return co_await expect_reply(client, "large", 16);
      case 2:
        co_return co_await expect_reply(client, "echo", 1000);
      case 3:
        co_return co_await expect_reply(client, "later", 16, {.idempotent = true});
      case 4:
        co_return co_await call_many(client, 20);
      case 5:
        co_return co_await expect_timeout(client);
      case 6:
        co_return co_await cancel_some(client);
      default:
        co_return co_await expect_reply(client, "echo", 16);
    }
  }
  std::uint64_t new_call(bool is_idempotent = false) {
    calls_.push_back({.is_idempotent = is_idempotent});
    return calls_.size() - 1;
  }
  task<> expect_reply(Client& client, std::string_view method, std::size_t size, rpc::call_options how = {}) {
    const std::uint64_t number = new_call(how.idempotent);
    co_await result_of(client.call(method, padded(number, size), how), number);
  }
  task<> call_many(Client& client, int count) {
    std::vector<std::pair<Client::pending, std::uint64_t>> all;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t number = new_call();
      all.emplace_back(client.call(world_.chance(4) ? "later" : "echo", padded(number, 30)), number);
    }
    for (auto& [each, number] : all) co_await result_of(std::move(each), number);
  }
  task<> result_of(Client::pending call, std::uint64_t number) {
    const time_point begin = io_.now();
    try {
      const std::string result = co_await call;
      EXPECT_EQ(number_in(result), number);
      calls_[number].is_acknowledged = true;
    } catch (const exception& thrown) {
      ADD_FAILURE() << "seed " << options_.seed << ", call " << number << ": " << thrown.what();
    }
    longest_ = std::max(longest_, io_.now() - begin);
  }
  // Its deadline passes before, while or after the method runs.
  task<> expect_timeout(Client& client) {
    const std::uint64_t number = new_call();
    const bool is_never = world_.chance(2);
    const rpc::call_options how{.deadline = world_.random_time(2ms)};
    try {
      const auto result = co_await client.call(is_never ? "never" : "later", padded(number, 16), how);
      EXPECT_FALSE(is_never);
      EXPECT_EQ(number_in(result), number);
      calls_[number].is_acknowledged = true;
    } catch (const exception& thrown) {
      EXPECT_EQ(thrown.error().code(), ETIMEDOUT);
    }
  }
  // Nobody awaits these calls. They are cancelled on their way, while they run, and on their way back.
  task<> cancel_some(Client& client) {
    std::vector<Client::pending> all;
    for (const char* const method : {"never", "later", "large", "echo"}) {
      for (const std::size_t size : {16, 1000}) all.push_back(client.call(method, padded(new_call(), size)));
    }
    while (!all.empty()) {
      co_await io_.sleep(world_.random_time(500us));
      all.pop_back();
    }
  }

  // ---- what must hold

  void check() {
    const auto& counts = world_.counts;
    EXPECT_EQ(counts.missing_receives, 0U);
    EXPECT_EQ(counts.wrong_credits, 0U);
    EXPECT_EQ(counts.wrong_reads, 0U);
    EXPECT_EQ(counts.overfull_queues, 0U);
    EXPECT_LE(longest_, kPatience) << "a client starves";
    for (const Call& each : calls_) {
      ASSERT_TRUE(!each.is_acknowledged || each.runs >= 1) << "seed " << options_.seed;
      ASSERT_TRUE(each.is_idempotent || each.runs <= 1) << "seed " << options_.seed;
    }
    EXPECT_LE(world_.receives, options_.spare + 2 * options_.max_sharers);
    EXPECT_LE(counts.max_bytes_of_an_end, std::size_t{256} << 10);
    EXPECT_EQ(running_, 0U);
    EXPECT_EQ(counts.ends, 0U);
    EXPECT_EQ(counts.blocks, 0U);
    EXPECT_EQ(counts.regions, 0U);
    EXPECT_EQ(world_.shares->connections(), 0U);
    EXPECT_EQ(world_.shares->taken(), 0U);
    EXPECT_EQ(world_.posted, world_.receives);
    EXPECT_EQ(io_.running(), 0U);
  }

  const Options options_;
  loop io_{{.now = SimulatedWorld::now}};
  SimulatedWorld& world_;
  rpc::service methods_;
  std::deque<Call> calls_;
  std::size_t running_ = 0;  // coroutines of methods
  std::optional<Server> server_;
  std::deque<Process> processes_;
  std::size_t finished_ = 0;
  std::size_t deaths_ = 0;
  std::size_t peak_clients_ = 0;
  duration longest_{};
};

std::uint64_t chosen_seed(std::uint64_t otherwise) {
  const char* const chosen = std::getenv("VERBENA_SEED");  // NOLINT(concurrency-mt-unsafe)
  return chosen != nullptr ? std::strtoull(chosen, nullptr, 0) : otherwise;
}

// Returns the number of clients that were connected at a time.
std::size_t run_and_print(const Options& options) {
  SCOPED_TRACE("VERBENA_SEED=" + std::to_string(options.seed));
  Simulation one(options);
  one.run();
  std::printf(
      "VERBENA_SEED=%llu: %zu calls, %llu messages, %zu deaths, %llu refused connections, %zu clients and %u "
      "receives at most, longest call %.1f ms\n",
      static_cast<unsigned long long>(options.seed), one.calls().size(),
      static_cast<unsigned long long>(one.counts().messages), one.deaths(),
      static_cast<unsigned long long>(one.counts().refused), one.peak_clients(), one.receives(),
      std::chrono::duration<double, std::milli>(one.longest()).count());
  return one.peak_clients();
}

TEST(RpcSimulation, ServesTenThousandClients) {
  EXPECT_GT(run_and_print({.seed = chosen_seed(1)}), kClients / 2);
}

// Few clients and fewer receives, many times: every other order of events.
TEST(RpcSimulation, HoldsForEachSeed) {
  const std::uint64_t first = chosen_seed(1);
  const std::uint64_t last =
      std::getenv("VERBENA_SEED") != nullptr ? first : 30;  // NOLINT(concurrency-mt-unsafe)
  for (std::uint64_t seed = first; seed <= last; ++seed)
    run_and_print({.seed = seed, .clients = 60, .spare = 10, .max_sharers = 30, .arrival = 10ms});
}

TEST(RpcSimulation, RepeatsARunFromItsSeed) {
  const Options options{.seed = chosen_seed(7), .clients = 200, .arrival = 10ms};
  Simulation first(options);
  first.run();
  Simulation second(options);
  second.run();
  EXPECT_EQ(first.counts().hash, second.counts().hash);
  EXPECT_EQ(first.calls().size(), second.calls().size());
  Simulation other({.seed = options.seed + 1, .clients = 200, .arrival = 10ms});
  other.run();
  EXPECT_NE(first.counts().hash, other.counts().hash);
}

}  // namespace
}  // namespace verbena
