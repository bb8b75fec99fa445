// SPDX-License-Identifier: Apache-2.0
// Several processes increment a counter in the server's memory. A spin lock beside the counter, which they
// take by an atomic compare-and-swap, keeps them apart. The server's processor takes no part.
//
//   verbena run lock serve [::]:7471 2        # in one shell: waits for two clients, and checks the sum
//   verbena run lock count HOST:7471 1000     # in a second and a third shell
//
// Leaves out: the death of a client that has the lock, and pauses between attempts. The clients must reach
// the server by one adapter, because those of two adapters are not atomic to each other (IBV_ATOMIC_HCA).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <verbena/async/join.hpp>
#include <verbena/cm.hpp>

namespace {

using namespace verbena;

constexpr std::uint64_t kFree = 0;

struct guarded {
  std::uint64_t owner;  // kFree, or the number of the client that has the lock
  std::uint64_t counter;
};
// The server's first message to a client.
struct welcome {
  std::uint64_t number;
  remote<guarded> memory;
};

// Returns how often the client says that it has incremented the counter.
task<std::uint64_t> serve(connection client, welcome first) {
  co_await client.send_value(first);
  co_return co_await client.receive_value<std::uint64_t>();
}

task<> run_server(loop& io, std::string where, std::uint64_t clients) {
  listener door(io, where);
  std::printf("listening at port %u\n", door.port());
  std::fflush(stdout);
  // Any connection can make the memory: all connections of a loop share a protection domain.
  std::optional<shared<guarded>> memory;
  std::vector<task<std::uint64_t>> sessions;
  for (std::uint64_t number = 1; number <= clients; ++number) {
    connection client = co_await door.accept();
    if (!memory) memory = client.share<guarded>();
    sessions.push_back(serve(std::move(client), {number, memory->remote()}));
  }
  std::uint64_t expected = 0;
  for (const std::uint64_t count : co_await when_all(std::move(sessions))) expected += count;
  const std::uint64_t found = (*memory)->counter;
  std::printf("counter %llu, expected %llu\n", static_cast<unsigned long long>(found),
              static_cast<unsigned long long>(expected));
  if (found != expected) throw std::runtime_error("the lock has not kept the clients apart");
}

task<> run_client(loop& io, std::string where, std::uint64_t rounds) {
  connection server = co_await connect(io, where);
  const auto [own, memory] = co_await server.receive_value<welcome>();
  const auto owner = memory.member(&guarded::owner);
  const auto counter = memory.member(&guarded::counter);
  std::uint64_t attempts = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    do ++attempts;
    while (co_await server.compare_exchange(owner, kFree, own) != kFree);
    const lease<std::uint64_t> value = co_await server.read(counter);
    // The release follows the WRITE without waiting for it: the server's adapter executes the requests of a
    // connection in their order. A READ is different: its result is here only when it has completed.
    auto written = server.write(counter, *value + 1);
    if (co_await server.compare_exchange(owner, own, kFree) != own)
      throw std::runtime_error("another client has taken the lock");
    co_await written;
  }
  co_await server.send_value(rounds);
  co_await server.close();
  std::printf("%llu increments, %llu attempts to lock\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(attempts));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc == 4 ? argv[1] : "";
  const std::uint64_t number = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if ((verb != "serve" && verb != "count") || number == 0) {
    std::fputs("usage: lock serve ADDRESS CLIENTS | count ADDRESS TIMES\n", stderr);
    return 1;
  }
  try {
    loop io;
    io.run(verb == "serve" ? run_server(io, argv[2], number) : run_client(io, argv[2], number));
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "lock: %s\n", failed.what());
    return 1;
  }
}
