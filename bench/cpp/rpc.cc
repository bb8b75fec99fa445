// SPDX-License-Identifier: Apache-2.0
// Measures remote procedure calls of the C++ API on one host: a client and a server, each with one thread and
// a loop of its own. Prints calls per second with many under way, percentiles of single calls, and the rate
// of large calls, which go by rendezvous.
//
// cpp_rpc [SECONDS [CALLS [ADDRESS]]]: SECONDS of each phase, 3 by default; CALLS under way, 256 by default.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <verbena/rpc.hpp>

namespace {

using namespace verbena;
using namespace std::chrono_literals;

constexpr std::string_view kArguments = "eight by";
constexpr std::size_t kLarge = 1 << 20;

void serve(const std::string& address, std::atomic<int>& port, const std::atomic<bool>& end) {
  loop io;
  rpc::service methods;
  methods.on<"echo">([](std::string_view text) { return rpc::reply(text); });
  rpc::server server(io, address, methods);
  port = server.port();
  io.run([&](loop&) -> task<> {
    while (!end) co_await io.sleep(10ms);
  });
}

// Keeps `depth` calls under way. Returns calls per second.
task<double> throughput(loop& io, rpc::client& client, duration time, int depth) {
  std::uint64_t calls = 0;
  const time_point begin = io.now();
  const time_point end = begin + time;
  while (io.now() < end) {
    std::vector<rpc::pending_call> all;
    all.reserve(static_cast<std::size_t>(depth));
    for (int i = 0; i < depth; ++i) all.push_back(client.call<"echo">(kArguments));
    for (auto& each : all) co_await each;
    calls += all.size();
  }
  co_return static_cast<double>(calls) / std::chrono::duration<double>(io.now() - begin).count();
}
task<std::vector<double>> latencies(loop& io, rpc::client& client, duration time) {
  std::vector<double> microseconds;
  const time_point end = io.now() + time;
  for (time_point before = io.now(); before < end;) {
    co_await client.call<"echo">(kArguments);
    const time_point after = io.now();
    microseconds.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    before = after;
  }
  co_return microseconds;
}
// Calls with large arguments and results, one at a time. Returns calls per second.
task<double> large_calls(loop& io, rpc::client& client, duration time) {
  const std::string arguments(kLarge, 'a');
  std::uint64_t calls = 0;
  const time_point begin = io.now();
  for (; io.now() < begin + time; ++calls) {
    if (co_await client.call<"echo">(arguments) != arguments) throw std::runtime_error("a wrong result");
  }
  co_return static_cast<double>(calls) / std::chrono::duration<double>(io.now() - begin).count();
}

void print(std::vector<double> all) {
  std::ranges::sort(all);
  const auto at = [&](double part) {
    return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
  };
  std::printf("one call at a time: %zu calls, p50 %.2f us, p99 %.2f us, p99.9 %.2f us\n", all.size(), at(0.5),
              at(0.99), at(0.999));
}

}  // namespace

int main(int argc, char** argv) {
  const auto time = std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 3);
  const int depth = argc > 2 ? std::atoi(argv[2]) : 256;
  const std::string host = argc > 3 ? argv[3] : "127.0.0.1";
  std::atomic<int> port = 0;
  std::atomic<bool> end = false;
  std::thread server([&] { serve(host + ":0", port, end); });
  while (port == 0) std::this_thread::yield();
  loop io;
  io.run([&](loop&) -> task<> {
    rpc::client client = co_await rpc::connect(io, host + ":" + std::to_string(port));
    co_await throughput(io, client, 200ms, depth);
    const double rate = co_await throughput(io, client, time, depth);
    std::printf("%d calls under way: %.0f calls/s\n", depth, rate);
    print(co_await latencies(io, client, time));
    std::printf("%zu bytes each way: %.0f calls/s\n", kLarge, co_await large_calls(io, client, time));
    co_await client.close();
  });
  end = true;
  server.join();
}
