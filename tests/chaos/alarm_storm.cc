// SPDX-License-Identifier: Apache-2.0
// Some thousand SIGALRM per second, in threads that wait in all kinds of calls. No data is lost or
// duplicated, and interrupted calls behave as the kernel's. Without SA_RESTART they fail with EINTR; with it
// only those that wait in poll(2) do.
//
//     alarm_storm HERTZ SECONDS restart|interrupt ADDRESS
//
// Prints the number of operations and of interruptions; exits with 0 if all is well.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/time.h>
#include <unistd.h>

#include "chaos/end.h"

namespace {

using Clock = std::chrono::steady_clock;

const char* address = nullptr;
bool restarts = false;
std::atomic<bool> is_well{true};
std::atomic<bool> stops{false};
std::atomic<uint64_t> alarms{0};

bool check(bool holds, const char* what) {
  if (holds) return true;
  std::printf("WRONG %s: %s\n", what, std::strerror(errno));
  std::fflush(stdout);
  is_well = false;
  stops = true;
  return false;
}

void count_alarm(int) {
  alarms.fetch_add(1, std::memory_order_relaxed);
}

// kPolls: the call may wait in poll(2), which fails with EINTR even if the handler has SA_RESTART.
enum Kind { kRestarts, kPolls };

struct Work {
  const char* name;
  uint64_t done = 0;
  uint64_t interrupted = 0;

  // Whether to repeat a call because its thread was interrupted.
  bool again(bool failed, Kind kind = kRestarts) {
    if (!failed || errno != EINTR) return false;
    ++interrupted;
    check(!restarts || kind == kPolls, name);
    return true;
  }
};

sockaddr_in own_address(in_port_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &at.sin_addr);
  return at;
}

// ---- verbs

void rounds(Work& work, end_wait wait) {
  end* const first = end_open(address, wait);
  end* const second = end_open(address, wait);
  if (!check(first != nullptr && second != nullptr && end_join_each_other(first, second) == 0, "ends"))
    return;
  // The second end waits for messages in a thread of its own.
  std::atomic<uint64_t> wanted{~0ull};
  std::thread other([&] {
    uint64_t number = 0;
    for (; number < wanted; ++number) {
      if (!check(end_second(second, number) == 0, end_error(second))) return;
    }
  });
  for (; !stops; ++work.done) {
    if (!check(end_first(first, work.done) == 0, end_error(first))) break;
  }
  wanted = work.done + 1;
  if (is_well) check(end_first(first, work.done) == 0, "the last round");
  if (!is_well) {
    end_give_up(first);
    end_give_up(second);
  }
  other.join();
  work.interrupted = end_interruptions(first) + end_interruptions(second);
  check(!restarts || work.interrupted == 0, "ibv_get_cq_event");
  check(end_close(first) == 0 && end_close(second) == 0, "closing");
}

void reopen(Work& work) {
  for (; !stops; ++work.done) {
    end* const opened = end_open(address, kEndSpins);
    if (!check(opened != nullptr, "opening") || !check(end_close(opened) == 0, "closing")) return;
  }
}

// ---- connections

rdma_cm_event_type next_event(Work& work, rdma_event_channel* channel, rdma_cm_id** id = nullptr) {
  rdma_cm_event* event = nullptr;
  int failed = 0;
  do failed = rdma_get_cm_event(channel, &event);
  while (work.again(failed != 0));
  if (!check(failed == 0, "rdma_get_cm_event")) return RDMA_CM_EVENT_DEVICE_REMOVAL;
  const rdma_cm_event_type type = event->event;
  if (id != nullptr) *id = event->id;
  check(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
  return type;
}

bool expect(Work& work, rdma_event_channel* channel, rdma_cm_event_type wanted, rdma_cm_id** id = nullptr) {
  const rdma_cm_event_type type = next_event(work, channel, id);
  if (type == wanted) return true;
  std::printf("%s instead of %s\n", rdma_event_str(type), rdma_event_str(wanted));
  return check(false, "another event");
}

void make_qp(rdma_cm_id* id) {
  ibv_qp_init_attr wanted{};
  wanted.cap = {
      .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  check(rdma_create_qp(id, nullptr, &wanted) == 0, "rdma_create_qp");
}

void serve_connections(Work& work, rdma_event_channel* channel) {
  for (;;) {
    rdma_cm_id* id = nullptr;
    const rdma_cm_event_type type = next_event(work, channel, &id);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      rdma_conn_param none{};
      make_qp(id);
      check(rdma_accept(id, &none) == 0, "rdma_accept");
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(id);
    } else if (type == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
      rdma_destroy_qp(id);
      check(rdma_destroy_id(id) == 0, "rdma_destroy_id");
      ++work.done;
    } else if (!check(type == RDMA_CM_EVENT_ESTABLISHED, rdma_event_str(type))) {
      return;
    }
  }
}

bool connect_once(Work& work, rdma_event_channel* channel, sockaddr_in at) {
  rdma_cm_id* id = nullptr;
  rdma_conn_param parameters{};
  parameters.retry_count = 7;
  if (!check(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id")) return false;
  const bool done = check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&at), 2000) == 0,
                          "rdma_resolve_addr") &&
                    expect(work, channel, RDMA_CM_EVENT_ADDR_RESOLVED) &&
                    check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route") &&
                    expect(work, channel, RDMA_CM_EVENT_ROUTE_RESOLVED) && (make_qp(id), true) &&
                    check(rdma_connect(id, &parameters) == 0, "rdma_connect") &&
                    expect(work, channel, RDMA_CM_EVENT_ESTABLISHED) &&
                    check(rdma_disconnect(id) == 0, "rdma_disconnect") &&
                    expect(work, channel, RDMA_CM_EVENT_DISCONNECTED);
  if (id->qp != nullptr) rdma_destroy_qp(id);
  return check(rdma_destroy_id(id) == 0, "rdma_destroy_id") && done;
}

void connections(Work& work) {
  rdma_event_channel* const serving = rdma_create_event_channel();
  rdma_event_channel* const calling = rdma_create_event_channel();
  rdma_cm_id* listener = nullptr;
  sockaddr_in at = own_address(7300);
  if (!check(serving != nullptr && calling != nullptr &&
                 rdma_create_id(serving, &listener, nullptr, RDMA_PS_TCP) == 0 &&
                 rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&at)) == 0 &&
                 rdma_listen(listener, 8) == 0,
             "listening"))
    return;
  // Waits until the process ends.
  static Work server{"the server's rdma_get_cm_event"};
  std::thread([serving] { serve_connections(server, serving); }).detach();
  while (!stops && connect_once(work, calling, at)) ++work.done;
}

// ---- rsockets

// Transfers all of it, in whatever pieces.
bool transfer(Work& work, int socket, unsigned char* bytes, size_t count, bool sends) {
  for (size_t done = 0; done < count;) {
    const ssize_t some = sends ? ::rsend(socket, bytes + done, count - done, 0)
                               : ::rrecv(socket, bytes + done, count - done, 0);
    if (work.again(some < 0)) continue;
    if (!check(some > 0, sends ? "rsend" : "rrecv")) return false;
    done += static_cast<size_t>(some);
  }
  return true;
}

bool poll_for(Work& work, int socket, short wanted) {
  pollfd entry{socket, wanted, 0};
  int count = 0;
  do count = ::rpoll(&entry, 1, 10000);
  while (work.again(count < 0, kPolls));
  return check(count == 1, "rpoll");
}

constexpr size_t kPiece = 100000;

unsigned char byte_at(uint64_t number, size_t at) {
  return static_cast<unsigned char>(number * 13 + at + (at >> 9));
}

// Sends back everything that it receives.
void echo(Work& work, int listener) {
  int socket = -1;
  do socket = ::raccept(listener, nullptr, nullptr);
  while (work.again(socket < 0));
  if (!check(socket >= 0, "raccept")) return;
  std::vector<unsigned char> bytes(kPiece);
  for (;; ++work.done) {
    ssize_t first = 0;
    do first = ::rrecv(socket, bytes.data(), 1, 0);
    while (work.again(first < 0));
    if (first == 0) break;
    if (!check(first == 1, "rrecv") || !transfer(work, socket, bytes.data() + 1, kPiece - 1, false) ||
        !transfer(work, socket, bytes.data(), kPiece, true))
      break;
  }
  check(::rclose(socket) == 0, "rclose");
}

void sockets(Work& work) {
  const sockaddr_in at = own_address(7301);
  const int listener = ::rsocket(AF_INET, SOCK_STREAM, 0);
  const int socket = ::rsocket(AF_INET, SOCK_STREAM, 0);
  if (!check(listener >= 0 && socket >= 0 &&
                 ::rbind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 &&
                 ::rlisten(listener, 4) == 0,
             "rlisten"))
    return;
  Work server{"the server's rsocket"};
  std::thread other([&] { echo(server, listener); });
  const int connected = ::rconnect(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at);
  // As with connect(2): the connection is being made all the same.
  if (work.again(connected != 0, kPolls)) {
    poll_for(work, socket, POLLOUT);
  } else {
    check(connected == 0, "rconnect");
  }
  std::vector<unsigned char> bytes(kPiece);
  for (; !stops && is_well; ++work.done) {
    for (size_t i = 0; i < kPiece; ++i) bytes[i] = byte_at(work.done, i);
    if (!transfer(work, socket, bytes.data(), kPiece, true)) break;
    std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    if (work.done % 2 == 0 && !poll_for(work, socket, POLLIN)) break;
    if (!transfer(work, socket, bytes.data(), kPiece, false)) break;
    bool right = true;
    for (size_t i = 0; i < kPiece; ++i) right &= bytes[i] == byte_at(work.done, i);
    if (!check(right, "other bytes come back")) break;
  }
  check(::rshutdown(socket, SHUT_RDWR) == 0, "rshutdown");
  other.join();
  check(::rclose(socket) == 0 && ::rclose(listener) == 0, "rclose");
  work.interrupted += server.interrupted;
}

// ---- alarms

void start_alarms(long hertz) {
  struct sigaction action {};
  action.sa_handler = count_alarm;
  action.sa_flags = restarts ? SA_RESTART : 0;
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval timer{{0, 1000000 / hertz}, {0, 1000000 / hertz}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

// Signals the program's threads in turn. The kernel would deliver a process's signals to the main thread.
void alarm_each(const std::vector<std::thread*>& threads, long hertz, Clock::time_point end) {
  for (size_t turn = 0; Clock::now() < end && !stops; ++turn) {
    ::pthread_kill(threads[turn % threads.size()]->native_handle(), SIGALRM);
    std::this_thread::sleep_for(std::chrono::microseconds(1000000 / hertz));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const long hertz = std::atol(argv[1]);
  const Clock::time_point end = Clock::now() + std::chrono::seconds(std::atol(argv[2]));
  restarts = std::string_view(argv[3]) == "restart";
  address = argv[4];
  start_alarms(hertz);

  Work works[] = {{"polling rounds"}, {"sleeping rounds"}, {"reopening"}, {"connections"}, {"rsockets"}};
  std::thread threads[] = {
      std::thread(rounds, std::ref(works[0]), kEndSpins), std::thread(rounds, std::ref(works[1]), kEndSleeps),
      std::thread(reopen, std::ref(works[2])), std::thread(connections, std::ref(works[3])),
      std::thread(sockets, std::ref(works[4]))};
  std::vector<std::thread*> all;
  for (std::thread& thread : threads) all.push_back(&thread);
  alarm_each(all, hertz, end);
  stops = true;
  for (std::thread& thread : threads) thread.join();
  const itimerval none{};
  ::setitimer(ITIMER_REAL, &none, nullptr);
  for (const Work& work : works) {
    std::printf("%s: %llu done, interrupted %llu times\n", work.name,
                static_cast<unsigned long long>(work.done),
                static_cast<unsigned long long>(work.interrupted));
    check(work.done > 0, work.name);
  }
  std::printf("%llu alarms\n%s\n", static_cast<unsigned long long>(alarms.load()),
              is_well ? "all is well" : "something is WRONG");
  return is_well ? 0 : 1;
}
