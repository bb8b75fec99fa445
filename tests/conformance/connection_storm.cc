// SPDX-License-Identifier: Apache-2.0
// Makes thousands of connections, each in one of the ways in which programs use librdmacm. Reports those that
// did not end as their way prescribes. Compiled like any program, with the installed headers only.
//
//   connection_storm listen PORT                                  until it is killed
//   connection_storm connect ADDRESS PORT COUNT SEED THREADS
//
// Exit status 0: every connection ended as prescribed.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

// Ways to use a connection. The client draws one, and tells the server in the private data.
enum class Way : uint8_t {
  kEcho,              // id->qp; the server returns the client's first message
  kOwnQp,             // the same with the programs' own QPs, by rdma_init_qp_attr() and rdma_establish()
  kServerFirst,       // the server sends as soon as it is connected
  kBothAtOnce,        // both send four messages
  kEndsAtOnce,        // the client disconnects as soon as it is connected
  kServerEndsAtOnce,  // the server does
  kDestroyed,         // the client sends, and destroys everything without disconnecting
  kRejected,          // by the server
  kWithoutQp,         // both invent their QPNs, as cmtime does
};
constexpr const char* kNames[] = {"echo",         "own QP",       "server first",
                                  "both at once", "ends at once", "server ends at once",
                                  "destroyed",    "rejected",     "without a QP"};
constexpr size_t kWays = std::size(kNames);

struct Hello {
  Way way;
  uint32_t serial;
};

constexpr int kMessages = 4;  // of kBothAtOnce
constexpr uint32_t kBytes = 64;
constexpr auto kPatience = std::chrono::seconds(40);

std::atomic<int> failures{0};
std::atomic<uint32_t> next_invented_qpn{1000};

void complain(const char* side, const Hello& hello, const std::string& what) {
  ++failures;
  std::printf("%s, connection %u (%s): %s\n", side, hello.serial, kNames[static_cast<size_t>(hello.way)],
              what.c_str());
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

// The objects of one side.
class End {
 public:
  End(rdma_cm_id* id, Way way) : id_(id), own_(way == Way::kOwnQp), has_qp_(way != Way::kWithoutQp) {}
  ~End() {
    if (own_ && qp_ != nullptr) ibv_destroy_qp(qp_);
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    if (region_ != nullptr) ibv_dereg_mr(region_);
    if (queue_ != nullptr) ibv_destroy_cq(queue_);
    rdma_destroy_id(id_);
    if (domain_ != nullptr) ibv_dealloc_pd(domain_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void make_qp() {
    if (!has_qp_) return;
    domain_ = ibv_alloc_pd(id_->verbs);
    queue_ = ibv_create_cq(id_->verbs, 64, nullptr, nullptr, 0);
    if (domain_ == nullptr || queue_ == nullptr) fail("domain and queue");
    region_ = ibv_reg_mr(domain_, memory_, sizeof memory_, IBV_ACCESS_LOCAL_WRITE);
    if (region_ == nullptr) fail("ibv_reg_mr");
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap = {
        .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    if (own_) {
      qp_ = ibv_create_qp(domain_, &attributes);
      if (qp_ == nullptr) fail("ibv_create_qp");
      move_to(IBV_QPS_INIT);
    } else {
      if (rdma_create_qp(id_, domain_, &attributes) != 0) fail("rdma_create_qp");
      qp_ = id_->qp;
    }
    for (int i = 0; i < 2 * kMessages; ++i) receive();
  }
  void make_ready() {
    if (!own_) return;
    move_to(IBV_QPS_RTR);
    move_to(IBV_QPS_RTS);
  }
  uint32_t qpn() const { return qp_ != nullptr ? qp_->qp_num : next_invented_qpn++; }

  void send() {
    ibv_sge piece{reinterpret_cast<uintptr_t>(memory_), kBytes, region_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    errno = ibv_post_send(qp_, &request, &bad);
    if (errno != 0) fail("ibv_post_send");
  }
  void receive() {
    ibv_sge piece{reinterpret_cast<uintptr_t>(memory_ + kBytes), kBytes, region_->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    errno = ibv_post_recv(qp_, &request, &bad);
    if (errno != 0) fail("ibv_post_recv");
  }
  // Polls completions and counts them. In a connection that ends they may be flushed.
  void poll(bool ends) {
    ibv_wc done[8];
    const int count = queue_ != nullptr ? ibv_poll_cq(queue_, static_cast<int>(std::size(done)), done) : 0;
    for (int i = 0; i < count; ++i) {
      if (done[i].status != IBV_WC_SUCCESS && !ends) {
        throw std::runtime_error(std::string("a completion: ") + ibv_wc_status_str(done[i].status));
      }
      if (done[i].status == IBV_WC_SUCCESS) ++(done[i].opcode == IBV_WC_SEND ? sent : received);
    }
  }

  rdma_cm_id* id() const { return id_; }
  int sent = 0;
  int received = 0;

 private:
  void move_to(ibv_qp_state state) {
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = state;
    if (rdma_init_qp_attr(id_, &attributes, &mask) != 0) fail("rdma_init_qp_attr");
    errno = ibv_modify_qp(qp_, &attributes, mask);
    if (errno != 0) fail("ibv_modify_qp");
  }

  rdma_cm_id* const id_;
  const bool own_;
  const bool has_qp_;
  char memory_[2 * kBytes] = {};
  ibv_pd* domain_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

rdma_conn_param parameters_of(const End& end, const Hello& hello) {
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  parameters.private_data = &hello;
  parameters.private_data_len = sizeof hello;
  parameters.qp_num = end.qpn();
  return parameters;
}

sockaddr_in address_of(const char* host, const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
  return address;
}

rdma_event_channel* make_channel() {
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) fail("rdma_create_event_channel");
  ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  return channel;
}

// ---- the server: one thread for all connections

struct Accepted {
  Accepted(rdma_cm_id* id, const Hello& said) : hello(said), end(id, said.way) {}
  Hello hello;
  End end;
  bool established = false, left = false, over = false;
  int answered = 0;
  Clock::time_point deadline = Clock::now() + kPatience;
};

void take_request(rdma_cm_id* id, const Hello& hello, std::list<Accepted>& connections) {
  if (hello.way == Way::kRejected) {
    if (rdma_reject(id, "no", 2) != 0) complain("server", hello, "rdma_reject");
    rdma_destroy_id(id);
    return;
  }
  Accepted& connection = connections.emplace_back(id, hello);
  id->context = &connection;
  connection.end.make_qp();
  connection.end.make_ready();
  rdma_conn_param parameters = parameters_of(connection.end, hello);
  if (rdma_accept(id, &parameters) != 0) fail("rdma_accept");
}

void take_established(Accepted& connection) {
  connection.established = true;
  const Way way = connection.hello.way;
  const int messages = way == Way::kServerFirst ? 1 : way == Way::kBothAtOnce ? kMessages : 0;
  for (int i = 0; i < messages; ++i) connection.end.send();
  if (way == Way::kServerEndsAtOnce && rdma_disconnect(connection.end.id()) != 0) fail("rdma_disconnect");
}

void take_event(const rdma_cm_event& event, Accepted& connection) {
  if (event.event == RDMA_CM_EVENT_ESTABLISHED) {
    take_established(connection);
  } else if (event.event == RDMA_CM_EVENT_DISCONNECTED) {
    connection.left = true;
  } else if (event.event != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
    throw std::runtime_error(std::string(rdma_event_str(event.event)) + " " + std::to_string(event.status));
  }
}

void take_turn(Accepted& connection) {
  const Way way = connection.hello.way;
  const bool ends =
      connection.left || way == Way::kEndsAtOnce || way == Way::kServerEndsAtOnce || way == Way::kDestroyed;
  connection.end.poll(ends);
  const bool echoes = way == Way::kEcho || way == Way::kOwnQp;
  for (; echoes && !connection.left && connection.answered < connection.end.received; ++connection.answered) {
    connection.end.send();
  }
  if (connection.left) {
    if (way != Way::kServerEndsAtOnce) rdma_disconnect(connection.end.id());
    connection.over = true;
  }
  if (Clock::now() > connection.deadline) throw std::runtime_error("it does not end");
}

// Runs a step of a connection. A failure ends the connection.
template <class Step>
void attempt(Accepted& connection, Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    complain("server", connection.hello, error.what());
    connection.over = true;
  }
}

[[noreturn]] void listen(const char* port) {
  rdma_event_channel* const channel = make_channel();
  rdma_cm_id* listener = nullptr;
  sockaddr_in address = address_of("0.0.0.0", port);
  if (rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) != 0 ||
      rdma_listen(listener, 64) != 0) {
    fail("rdma_listen");
  }
  std::puts("ready");
  std::list<Accepted> connections;
  for (;;) {
    pollfd entry{channel->fd, POLLIN, 0};
    ::poll(&entry, 1, connections.empty() ? -1 : 1);
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel, &event) == 0) {
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        Hello hello;
        std::memcpy(&hello, event->param.conn.private_data, sizeof hello);
        rdma_cm_id* const id = event->id;
        rdma_ack_cm_event(event);
        try {
          take_request(id, hello, connections);
        } catch (const std::exception& error) {
          complain("server", hello, error.what());
          connections.back().over = true;
        }
      } else {
        Accepted& connection = *static_cast<Accepted*>(event->id->context);
        attempt(connection, [&] { take_event(*event, connection); });
        rdma_ack_cm_event(event);
      }
    }
    for (Accepted& each : connections) {
      if (!each.over) attempt(each, [&] { take_turn(each); });
    }
    connections.remove_if([](const Accepted& each) { return each.over; });
  }
}

// ---- the client: each thread makes one connection after another

class Caller {
 public:
  explicit Caller(rdma_event_channel* channel) : channel_(channel) {}

  void connect(sockaddr_in to, const Hello& hello) {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) fail("rdma_create_id");
    End end(id, hello.way);
    if (rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 10'000) != 0)
      fail("rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(id, 10'000) != 0) fail("rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    end.make_qp();
    rdma_conn_param parameters = parameters_of(end, hello);
    if (rdma_connect(id, &parameters) != 0) fail("rdma_connect");
    if (hello.way == Way::kRejected) return expect(RDMA_CM_EVENT_REJECTED);
    if (id->qp != nullptr) {
      expect(RDMA_CM_EVENT_ESTABLISHED);
    } else {
      expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
      end.make_ready();
      if (rdma_establish(id) != 0) fail("rdma_establish");
    }
    exchange(end, hello.way);
    if (hello.way == Way::kDestroyed) return;
    if (hello.way == Way::kServerEndsAtOnce) expect(RDMA_CM_EVENT_DISCONNECTED);
    if (rdma_disconnect(id) != 0) fail("rdma_disconnect");
    if (hello.way != Way::kServerEndsAtOnce) expect(RDMA_CM_EVENT_DISCONNECTED);
  }

 private:
  void exchange(End& end, Way way) {
    const bool sends = way == Way::kEcho || way == Way::kOwnQp || way == Way::kDestroyed;
    const int to_send = way == Way::kBothAtOnce ? kMessages : sends ? 1 : 0;
    const int to_receive = way == Way::kServerFirst ? 1 : to_send;
    for (int i = 0; i < to_send; ++i) end.send();
    if (way == Way::kDestroyed) return;
    while (end.sent < to_send || end.received < to_receive) {
      end.poll(false);
      if (Clock::now() > deadline_) throw std::runtime_error("messages or completions are missing");
    }
  }
  void expect(rdma_cm_event_type wanted) {
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel_, &event) != 0) {
      if (errno != EAGAIN) fail("rdma_get_cm_event");
      if (Clock::now() > deadline_) throw std::runtime_error(std::string("no ") + rdma_event_str(wanted));
      pollfd entry{channel_->fd, POLLIN, 0};
      ::poll(&entry, 1, 1000);
    }
    const rdma_cm_event_type type = event->event;
    const int status = event->status;
    rdma_ack_cm_event(event);
    if (type == wanted) return;
    throw std::runtime_error(std::string(rdma_event_str(type)) + " " + std::to_string(status) +
                             " instead of " + rdma_event_str(wanted));
  }

  rdma_event_channel* const channel_;
  const Clock::time_point deadline_ = Clock::now() + kPatience;
};

int connect(char** arguments) {
  const sockaddr_in address = address_of(arguments[0], arguments[1]);
  const uint32_t count = static_cast<uint32_t>(std::atoi(arguments[2]));
  const int seed = std::atoi(arguments[3]);
  std::atomic<uint32_t> next{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < std::atoi(arguments[4]); ++number) {
    threads.emplace_back([&, number] {
      std::mt19937 random(static_cast<uint32_t>(seed * 1000 + number));
      for (uint32_t serial = next++; serial < count; serial = next++) {
        const Hello hello{static_cast<Way>(random() % kWays), serial};
        rdma_event_channel* const channel = make_channel();
        try {
          Caller(channel).connect(address, hello);
        } catch (const std::exception& error) {
          complain("client", hello, error.what());
        }
        rdma_destroy_event_channel(channel);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%u connections, %d failures\n", count, failures.load());
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    if (argc == 3 && std::string_view(argv[1]) == "listen") listen(argv[2]);
    if (argc == 7 && std::string_view(argv[1]) == "connect") return connect(argv + 2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "connection_storm: %s\n", error.what());
    return 1;
  }
  std::fputs("usage: connection_storm listen PORT | connect ADDRESS PORT COUNT SEED THREADS\n", stderr);
  return 2;
}
