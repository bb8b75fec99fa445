// SPDX-License-Identifier: Apache-2.0
// Clients of remote procedure calls are killed at random. Each call runs at most once, and each call whose
// reply a client has seen has run exactly once. The server keeps nothing of the clients that are gone.
//
// VERBENA_RPC_SECONDS: how long, 3 by default.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verbena/rpc.hpp>

#include "adapter/objects/support/environment.h"

extern char** environ;

namespace verbena {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMaxCalls = std::uint64_t{1} << 26;
constexpr std::size_t kClients = 4;
constexpr int kUnderWay = 8;

// Shared by the server and its clients.
struct Ledger {
  std::atomic<std::uint64_t> next;  // number of the next call
  struct Call {
    std::uint8_t runs;     // written by the server
    std::uint8_t replies;  // written by the client
  };
  std::array<Call, kMaxCalls> calls;

  static Ledger& at(int file) {
    void* const memory = ::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) std::abort();
    return *static_cast<Ledger*>(memory);
  }
};

// A client's process: calls without end. Large calls go by rendezvous.
task<> call_again_and_again(loop& io, std::string address, Ledger& ledger) {
  rpc::client client = co_await rpc::connect(io, address);
  const std::string padding(20'000, 'x');
  for (;;) {
    std::vector<std::uint64_t> numbers;
    std::vector<rpc::pending_call> all;
    for (int i = 0; i < kUnderWay; ++i) {
      numbers.push_back(ledger.next++);
      if (numbers.back() >= kMaxCalls) co_return;
      const std::string text = std::to_string(numbers.back());
      all.push_back(client.call<"run">(i == 0 ? text + " " + padding : text));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      rpc::pending_call& next = all[i];
      const std::string reply = co_await next;
      if (std::stoull(reply) != numbers[i]) std::abort();
      ++ledger.calls[numbers[i]].replies;
    }
  }
}

class Process {
 public:
  Process(const std::string& address, int file) {
    const std::string number = std::to_string(file);
    const char* arguments[] = {"/proc/self/exe", "client", address.c_str(), number.c_str(), nullptr};
    EXPECT_EQ(
        ::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
  }
  Process(const Process&) = delete;
  ~Process() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it has ended before: " << status;
  }

 private:
  pid_t pid_ = 0;
};

std::size_t descriptors() {
  std::size_t open = 0;
  for (int fd = 0; fd < 65536; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}

TEST(RpcClients, MayBeKilledAtAnyTime) {
  const char* const wanted = std::getenv("VERBENA_RPC_SECONDS");
  const auto time = std::chrono::seconds(wanted != nullptr ? std::atoi(wanted) : 3);
  std::random_device device;
  const auto seed = device();
  std::mt19937 random(seed);
  RecordProperty("seed", std::to_string(seed));
  const int file = ::memfd_create("ledger", 0);  // inherited
  ASSERT_EQ(::ftruncate(file, sizeof(Ledger)), 0);
  Ledger& ledger = Ledger::at(file);

  loop io;
  rpc::service methods;
  methods.on<"run">([&](std::string_view text) -> task<rpc::reply> {
    const std::string number(text.substr(0, text.find(' ')));
    if (text.size() % 3 == 0) co_await io.yield();
    ++ledger.calls[std::stoull(number)].runs;
    co_return text.size() > 100 ? rpc::reply(number + std::string(20'000, ' ')) : rpc::reply(number);
  });
  rpc::server server(io, "127.0.0.1:0", methods);
  const std::string address = "127.0.0.1:" + std::to_string(server.port());
  std::size_t killed = 0, open = 0;
  io.run([&](loop&) -> task<> {
    std::array<std::optional<Process>, kClients> clients;
    const time_point end = io.now() + time;
    while (io.now() < end) {
      auto& one = clients[random() % kClients];
      if (one) ++killed;
      one.reset();
      one.emplace(address, file);
      co_await io.sleep(std::chrono::milliseconds(random() % 200));
      if (killed == 2 * kClients) open = descriptors();
    }
    for (auto& each : clients) each.reset();
    while (server.clients() != 0) co_await io.sleep(10ms);
  });

  std::uint64_t runs = 0, replies = 0;
  for (std::uint64_t i = 0; i < std::min(ledger.next.load(), kMaxCalls); ++i) {
    const Ledger::Call& each = ledger.calls[i];
    ASSERT_LE(each.runs, 1) << "call " << i << ", seed " << seed;
    ASSERT_LE(each.replies, each.runs) << "call " << i << ", seed " << seed;
    runs += each.runs;
    replies += each.replies;
  }
  std::printf("%zu clients killed, %llu calls run, %llu replies seen\n", killed,
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(replies));
  EXPECT_GT(replies, 0U);
  if (open != 0) {
    EXPECT_LE(descriptors(), open + 32);
  }
}

}  // namespace
}  // namespace verbena

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "client") {
    verbena::loop io;
    try {
      io.run(verbena::call_again_and_again(io, argv[2], verbena::Ledger::at(std::atoi(argv[3]))));
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "%s\n", failure.what());
      return 2;
    }
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new verbena::adapter::testing::Environment);
  return RUN_ALL_TESTS();
}
