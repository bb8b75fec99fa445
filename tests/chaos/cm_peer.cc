// SPDX-License-Identifier: Apache-2.0
// One end of a connection that is made step by step, so that a test can end either side in between.
//
//     cm_peer server ADDRESS PORT        listens at once
//     cm_peer client ADDRESS PORT
//
// Reads commands, one per line: resolve, route, connect, establish (client); accept, reject (server);
// disconnect, destroy, quit. Prints a line for each failed step, "error STEP ERRNO", and for each event,
// "event NAME STATUS". There is no QP: the setup needs only a QPN.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

namespace {

constexpr int kTimeoutMs = 2000;

void say(const char* what, const char* name, int value) {
  std::printf("%s %s %d\n", what, name, value);
  std::fflush(stdout);
}

class Peer {
 public:
  Peer(const char* address, const char* port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (::getaddrinfo(address, port, &hints, &found) == 0) {
      std::memcpy(&address_, found->ai_addr, found->ai_addrlen);
      ::freeaddrinfo(found);
    }
    channel_ = rdma_create_event_channel();
    check("create",
          channel_ != nullptr && rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) == 0 ? 0 : -1);
    say("step", "created", 0);
  }

  void listen() {
    listener_ = id_;
    id_ = nullptr;
    check("bind", rdma_bind_addr(listener_, address()));
    check("listen", rdma_listen(listener_, 8));
    say("step", "listening", 0);
  }

  int run() {
    pollfd waited[] = {{STDIN_FILENO, POLLIN, 0}, {channel_->fd, POLLIN, 0}};
    for (;;) {
      if (::poll(waited, 2, -1) < 0) return 1;
      if (waited[1].revents != 0) on_event();
      if (waited[0].revents != 0 && !on_command()) return 0;
    }
  }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }

  void check(const char* step, int result) {
    if (result != 0) say("error", step, errno);
  }

  void on_event() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return say("error", "event", errno);
    say("event", rdma_event_str(event->event) + std::strlen("RDMA_CM_EVENT_"), event->status);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) id_ = event->id;
    rdma_ack_cm_event(event);
  }

  bool on_command() {
    char line[64];
    if (std::fgets(line, sizeof line, stdin) == nullptr) return false;
    std::string command(line);
    while (!command.empty() && command.back() == '\n') command.pop_back();
    rdma_conn_param wanted{};
    wanted.qp_num = 0x4711;
    wanted.retry_count = wanted.rnr_retry_count = 7;
    if (command == "quit") return false;
    if (command == "resolve") check("resolve", rdma_resolve_addr(id_, nullptr, address(), kTimeoutMs));
    if (command == "route") check("route", rdma_resolve_route(id_, kTimeoutMs));
    if (command == "connect") check("connect", rdma_connect(id_, &wanted));
    if (command == "accept") check("accept", rdma_accept(id_, &wanted));
    if (command == "establish") check("establish", rdma_establish(id_));
    if (command == "reject") check("reject", rdma_reject(id_, nullptr, 0));
    if (command == "disconnect") check("disconnect", rdma_disconnect(id_));
    if (command == "destroy") {
      check("destroy", rdma_destroy_id(id_));
      id_ = nullptr;
    }
    say("step", command.c_str(), 0);
    return true;
  }

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  sockaddr_storage address_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: cm_peer server|client ADDRESS PORT\n");
    return 2;
  }
  ::setvbuf(stdin, nullptr, _IONBF, 0);  // poll() must see all input
  Peer peer(argv[2], argv[3]);
  if (std::string(argv[1]) == "server") peer.listen();
  return peer.run();
}
