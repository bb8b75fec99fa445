// SPDX-License-Identifier: Apache-2.0
// A clock: clients ask a server for its time by datagrams, and estimate by how much their own clocks differ.
// Shows verbena/cm/datagrams.hpp: addresses, answers to the sender, and deadlines: any datagram may be lost.
//
//   verbena run clock serve [::]:7471           # in one shell
//   verbena run clock ask 127.0.0.1:7471        # in another shell, or on another host
//   verbena run clock ask 10.0.0.1:7471 10.0.0.2:0   # the own address, for a host with several adapters
//
// As in NTP, the answer with the shortest round trip is the best one, and half of this trip its uncertainty.
// Leaves out: who may ask, and a server's proof of who it is.
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <verbena/async/join.hpp>
#include <verbena/cm/datagrams.hpp>

namespace {

using namespace verbena;

constexpr std::uint32_t kQuestions = 8;
constexpr auto kPatience = std::chrono::milliseconds(200);

struct message {
  std::uint32_t question = 0;  // its number, which the answer repeats
  std::uint32_t unused = 0;
  std::int64_t server_time = 0;  // ns since 1970
};

std::int64_t wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::optional<message> message_in(const datagram& one) {
  message read;
  if (one.payload.size() != sizeof read) return std::nullopt;
  std::memcpy(&read, one.payload.data(), sizeof read);
  return read;
}

task<> send(datagram_socket& from, const datagram_address& to, const message& one) {
  return from.send(to, std::as_bytes(std::span(&one, 1)));
}

task<> serve(datagram_socket socket) {
  std::printf("serving at port %u\n", static_cast<unsigned>(socket.port()));
  std::fflush(stdout);
  while (const datagram asked = co_await socket.receive()) {
    std::optional<message> answer = message_in(asked);
    if (!answer) continue;
    answer->server_time = wall_time();
    co_await send(socket, asked.from, *answer);
  }
}

// Drops answers to earlier questions, which were late.
task<message> answer_to(datagram_socket& socket, std::uint32_t question) {
  for (;;) {
    const datagram came = co_await socket.receive();
    const std::optional<message> read = message_in(came);
    if (read && read->question == question) co_return *read;
  }
}

task<> ask(loop& io, datagram_socket socket, std::string where) {
  const datagram_address server = co_await socket.resolve(where);
  std::int64_t best_trip = INT64_MAX, best_offset = 0;
  int answers = 0;
  for (std::uint32_t question = 0; question < kQuestions; ++question) {
    const std::int64_t begin = wall_time();
    co_await send(socket, server, {question});
    try {
      const message answer =
          co_await within(io, kPatience, answer_to(socket, question), "wait for an answer");
      const std::int64_t trip = wall_time() - begin;
      ++answers;
      if (trip >= best_trip) continue;
      best_trip = trip;
      best_offset = answer.server_time - (begin + trip / 2);
    } catch (const exception& late) {
      if (late.error().code() != ETIMEDOUT) throw;
    }
  }
  if (answers == 0) throw exception(error("ask", ETIMEDOUT, where, "no answer came"));
  std::printf("the server's clock is %+.3f us ahead, within %.3f us, by %d answers to %u questions\n",
              static_cast<double>(best_offset) / 1000, static_cast<double>(best_trip) / 2000, answers,
              kQuestions);
  co_await socket.close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[1] : "";
  if (!(what == "serve" && argc == 3) && !(what == "ask" && argc <= 4)) {
    std::fputs("usage: clock serve ADDRESS:PORT | clock ask SERVER:PORT [OWN_ADDRESS:0]\n", stderr);
    return 1;
  }
  try {
    loop io;
    if (what == "serve") {
      io.run(serve(datagram_socket(io, argv[2])));
    } else {
      io.run(ask(io, datagram_socket(io, argc == 4 ? argv[3] : "[::]:0"), argv[2]));
    }
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "clock: %s\n", failed.what());
    return 1;
  }
}
