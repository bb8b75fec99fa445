// SPDX-License-Identifier: Apache-2.0
// Measures how fast connections are set up and torn down through librdmacm, one at a time and many at a time,
// and the memory of open ones. A second process listens; each of the two has one event channel.
//
//     verbena run -- build/release/bin/connection_rate --address 127.0.0.1
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTimeoutMs = 2000;

void require(bool good, const char* what) {
  if (good) return;
  fmt::print(stderr, "connection_rate: {}: {}\n", what, std::strerror(errno));
  std::exit(1);
}

// Returns the resident memory of a process in bytes, without shared pages.
double resident_bytes(const std::string& pid) {
  std::ifstream statm("/proc/" + pid + "/statm");
  long total = 0, resident = 0, shared = 0;
  statm >> total >> resident >> shared;
  return static_cast<double>(resident - shared) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// Returns the pid of this network namespace's agent; empty if it is not visible.
std::string find_agent() {
  struct stat ours {
  }, other{};
  ::stat("/proc/self/ns/net", &ours);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (!std::isdigit(static_cast<unsigned char>(pid[0]))) continue;
    std::ifstream comm(entry.path() / "comm");
    std::string name;
    std::getline(comm, name);
    if (name == "verbena-agent" && ::stat((entry.path() / "ns/net").c_str(), &other) == 0 &&
        other.st_ino == ours.st_ino) {
      return pid;
    }
  }
  return {};
}

// Creates QPs of minimum size on queues that all connections of the process share.
class Queues {
 public:
  void create_qp(rdma_cm_id* id) {
    if (cq_ == nullptr) {
      pd_ = ibv_alloc_pd(id->verbs);
      cq_ = pd_ != nullptr ? ibv_create_cq(id->verbs, 256, nullptr, nullptr, 0) : nullptr;
      require(cq_ != nullptr, "ibv_create_cq");
    }
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    require(rdma_create_qp(id, pd_, &attr) == 0, "rdma_create_qp");
  }

 private:
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

rdma_conn_param parameters() {
  rdma_conn_param wanted{};
  wanted.responder_resources = wanted.initiator_depth = 1;
  wanted.retry_count = wanted.rnr_retry_count = 7;
  return wanted;
}

sockaddr_storage address_of(const std::string& text, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    fmt::print(stderr, "connection_rate: '{}' is no IPv4 or IPv6 address\n", text);
    std::exit(1);
  }
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

// Accepts every request until it is killed.
[[noreturn]] void serve(const std::string& text, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Queues queues;
  rdma_event_channel* channel = rdma_create_event_channel();
  require(channel != nullptr, "rdma_create_event_channel");
  rdma_cm_id* listener = nullptr;
  require(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  sockaddr_storage address = address_of(text, 0);
  require(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0, "rdma_bind_addr");
  require(rdma_listen(listener, 1024) == 0, "rdma_listen");
  const uint16_t port = ntohs(rdma_get_src_port(listener));
  require(::write(ready, &port, sizeof port) == sizeof port, "write");
  rdma_conn_param wanted = parameters();
  for (;;) {
    rdma_cm_event* event = nullptr;
    require(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);
    switch (type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        queues.create_qp(id);
        require(rdma_accept(id, &wanted) == 0, "rdma_accept");
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        rdma_disconnect(id);
        rdma_destroy_qp(id);
        rdma_destroy_id(id);
        break;
      default:
        break;
    }
  }
}

// Sets up connections, a given number at a time, and tears them down at once or on request.
class Caller {
 public:
  Caller(const std::string& address, uint16_t port)
      : channel_(rdma_create_event_channel()), address_(address_of(address, port)) {
    require(channel_ != nullptr, "rdma_create_event_channel");
  }

  // Returns the seconds for setting up `count` connections, and unless `keep` tearing them down again.
  double run(size_t count, size_t at_a_time, bool keep) {
    const auto start = Clock::now();
    size_t begun = 0, done = 0;
    while (done < count) {
      while (begun < count && begun - done < at_a_time) {
        begin();
        ++begun;
      }
      done += handle_event(keep);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double close_all(size_t at_a_time) {
    const auto start = Clock::now();
    const size_t count = open_.size();
    size_t begun = 0, done = 0;
    while (done < count) {
      while (begun < count && begun - done < at_a_time) rdma_disconnect(open_[begun++]);
      done += handle_event(false);
    }
    open_.clear();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  void begin() {
    rdma_cm_id* id = nullptr;
    require(rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    require(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address_), kTimeoutMs) == 0,
            "rdma_resolve_addr");
  }

  // Returns the number of connections that finished with this event.
  size_t handle_event(bool keep) {
    rdma_cm_event* event = nullptr;
    require(rdma_get_cm_event(channel_, &event) == 0, "rdma_get_cm_event");
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    const int status = event->status;
    rdma_ack_cm_event(event);
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        require(rdma_resolve_route(id, kTimeoutMs) == 0, "rdma_resolve_route");
        return 0;
      case RDMA_CM_EVENT_ROUTE_RESOLVED: {
        queues_.create_qp(id);
        rdma_conn_param wanted = parameters();
        require(rdma_connect(id, &wanted) == 0, "rdma_connect");
        return 0;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        if (keep) {
          open_.push_back(id);
          return 1;
        }
        require(rdma_disconnect(id) == 0, "rdma_disconnect");
        return 0;
      case RDMA_CM_EVENT_DISCONNECTED:
        rdma_destroy_qp(id);
        rdma_destroy_id(id);
        return 1;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return 0;
      default:
        fmt::print(stderr, "connection_rate: {}, status {}\n", rdma_event_str(type), status);
        std::exit(1);
    }
  }

  rdma_event_channel* channel_;
  sockaddr_storage address_;
  Queues queues_;
  std::vector<rdma_cm_id*> open_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures connections set up and torn down per second through librdmacm, and the memory of open ones."};
  std::string address = "127.0.0.1";
  size_t count = 1000, at_a_time = 64, open = 10000;
  app.add_option("--address", address, "Address of this host to listen on and to connect to")
      ->capture_default_str();
  app.add_option("--connections", count, "Connections per measurement")->capture_default_str();
  app.add_option("--at-a-time", at_a_time, "Connections set up at once in the second measurement")
      ->capture_default_str();
  app.add_option("--open", open, "Connections to keep open at once; 0: skip this measurement")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  int ready[2];
  require(::pipe(ready) == 0, "pipe");
  const pid_t server = ::fork();
  require(server >= 0, "fork");
  if (server == 0) serve(address, ready[1]);
  uint16_t port = 0;
  ::close(ready[1]);
  if (::read(ready[0], &port, sizeof port) != sizeof port) return 1;

  Caller caller(address, port);
  caller.run(std::min<size_t>(count, 50), 1, false);  // creates everything that is created only once
  for (const size_t width : {size_t{1}, at_a_time}) {
    const double seconds = caller.run(count, width, false);
    fmt::print("{:>6} connections, {:>4} at a time: {:>8.0f} a second, {:>7.1f} us each\n", count, width,
               static_cast<double>(count) / seconds, seconds * 1e6 / static_cast<double>(count));
  }
  if (open > 0) {
    const std::string agent = find_agent();
    const std::string peer = std::to_string(server);
    const double before[] = {resident_bytes("self"), resident_bytes(peer), resident_bytes(agent)};
    const double seconds = caller.run(open, at_a_time, true);
    const auto n = static_cast<double>(open);
    fmt::print(
        "{:>6} open at once: {:.0f} a second; bytes of each in the caller {:.0f}, in the listener {:.0f}",
        open, n / seconds, (resident_bytes("self") - before[0]) / n, (resident_bytes(peer) - before[1]) / n);
    if (!agent.empty())
      fmt::print(", in the agent {:.0f} (both ends)", (resident_bytes(agent) - before[2]) / n);
    const double closing = caller.close_all(at_a_time);
    fmt::print("; {:.0f} closed a second\n", n / closing);
  }
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return 0;
}
