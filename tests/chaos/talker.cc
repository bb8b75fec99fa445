// SPDX-License-Identifier: Apache-2.0
// A program that talks to another instance in many threads: rounds of messages in one, WRITEs and READs in
// another. Other threads wait for asynchronous events, for connection events, and in an rsocket.
//
//     talker server|client ADDRESS PORT ROUNDS [exits] [impatient]
//
// Prints "up" after some rounds, "done", or "lost WHY" when a completion has an error. Exits with 0 after all
// its rounds, with 4 if the other end is lost, with 1 after a fault. With "exits" a handler of SIGABRT calls
// exit(3), as that of a crash reporter may, in whatever thread. With "impatient" it gives up within a second
// on a peer that does not answer.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <unistd.h>

#include "chaos/end.h"

namespace {

constexpr uint64_t kUp = 50;
constexpr int kLost = 4;

struct Options {
  bool serves = false;
  const char* address = nullptr;
  int port = 0;
  uint64_t rounds = 0;
  bool is_impatient = false;
};

std::atomic<int> outcome{0};

void say(const char* what, const char* more = "") {
  std::printf("%s %s\n", what, more);
  std::fflush(stdout);
}

[[noreturn]] void refuse(const char* what, int error) {
  std::printf("refused %s: %s\n", what, std::strerror(error));
  std::fflush(stdout);
  std::_Exit(3);
}

end* open_end(const Options& options, end_wait wait, int port) {
  end* made = end_open(options.address, wait);
  if (made == nullptr) refuse("an end", errno);
  if (options.is_impatient) end_set_patience(made, 16, 3);
  if (const int error = end_meet(made, options.address, port, options.serves ? 1 : 0); error != 0)
    refuse("a meeting", error);
  return made;
}

// Tells the peer about the loss on the other connection, too.
void lose(int error, end* where, end* other) {
  int none = 0;
  if (!outcome.compare_exchange_strong(none, error < 0 ? 1 : kLost)) return;
  say(error < 0 ? "fault" : "lost", error == ECONNRESET ? end_error(where) : std::strerror(error));
  end_give_up(other);
}

void talk(const Options& options, end* own, end* other, uint64_t from, uint64_t to) {
  for (uint64_t i = from; i < to && outcome == 0; ++i) {
    if (const int error = options.serves ? end_second(own, i) : end_first(own, i); error != 0)
      return lose(error, own, other);
    if (i == kUp) say("up");
  }
}

void write(const Options& options, end* own, end* other, const std::atomic<bool>& stops) {
  pthread_setname_np(pthread_self(), "writes");
  for (uint64_t i = 0; !options.serves && !stops && outcome == 0; ++i) {
    if (const int error = end_write_and_read(own, i); error != 0) return lose(error, own, other);
  }
}

// Starts threads that wait until the process ends.
void wait_for_asynchronous_events(ibv_context* context) {
  std::thread([context] {
    pthread_setname_np(pthread_self(), "waits");
    ibv_async_event event;
    while (ibv_get_async_event(context, &event) == 0) ibv_ack_async_event(&event);
  }).detach();
}

void listen_for_connections(const Options& options) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(options.port + 2));
  ::inet_pton(AF_INET, options.address, &at.sin_addr);
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* listener = nullptr;
  if (channel == nullptr || rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&at)) != 0 || rdma_listen(listener, 4) != 0)
    refuse("a listener", errno);
  std::thread([channel] {
    pthread_setname_np(pthread_self(), "accepts");
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel, &event) == 0) rdma_ack_cm_event(event);
  }).detach();
  at.sin_port = htons(static_cast<uint16_t>(options.port + 3));
  const int socket = ::rsocket(AF_INET, SOCK_STREAM, 0);
  if (socket < 0 || ::rbind(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::rlisten(socket, 4) != 0)
    refuse("an rsocket", errno);
}

void end_by_exit(int) {
  std::exit(7);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  Options options;
  options.serves = std::string_view(argv[1]) == "server";
  options.address = argv[2];
  options.port = std::atoi(argv[3]);
  options.rounds = std::strtoull(argv[4], nullptr, 10);
  for (int i = 5; i < argc; ++i) {
    if (std::string_view(argv[i]) == "exits") std::signal(SIGABRT, end_by_exit);
    if (std::string_view(argv[i]) == "impatient") options.is_impatient = true;
  }
  pthread_setname_np(pthread_self(), "main");

  end* const talking = open_end(options, options.serves ? kEndSleeps : kEndSpins, options.port);
  end* const writing = open_end(options, kEndSleeps, options.port + 1);
  if (options.serves) listen_for_connections(options);
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (count == 0) refuse("a device", errno);
  ibv_context* const context = ibv_open_device(list[0]);
  if (context == nullptr) refuse("a context", errno);
  ibv_free_device_list(list);
  wait_for_asynchronous_events(context);

  // The server's last round comes after the client's last WRITE: the server must exist until then.
  std::atomic<bool> stops{false};
  std::thread writer([&] { write(options, writing, talking, stops); });
  std::thread talker([&] {
    pthread_setname_np(pthread_self(), "talks");
    talk(options, talking, writing, 0, options.rounds - 1);
  });
  talker.join();
  stops = true;
  writer.join();
  talk(options, talking, writing, options.rounds - 1, options.rounds);
  if (outcome == 0) say("done");
  if (end_close(talking) != 0 || end_close(writing) != 0) {
    say("fault", "an end cannot be closed");
    return 1;
  }
  return outcome;
}
