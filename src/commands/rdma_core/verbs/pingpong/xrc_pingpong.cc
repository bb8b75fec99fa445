// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/exchange.h"
#include "commands/rdma_core/verbs/pingpong/pingpong.h"
#include "commands/rdma_core/verbs/pingpong/xrc_endpoint.h"

namespace verbena::rdma_core {
namespace {

const std::string kEnd("END\0", 4);

// A peer: its TCP connection, its address, and the number of messages sent to it.
struct Peer {
  UniqueFd connection;
  XrcAddress address;
  unsigned sent = 0;
};

class XrcGame {
 public:
  XrcGame(const PingpongProgram& program, const Settings& settings, XrcEndpoint& endpoint, Output& output)
      : program_(program), settings_(settings), endpoint_(endpoint), output_(output) {}

  bool connect() { return settings_.serves() ? await_clients() : join_server(); }

  bool play() {
    if (settings_.serves()) {
      for (size_t i = 0; i < peers_.size(); ++i) {
        if (!send(i)) return false;
      }
    }
    const size_t total = static_cast<size_t>(settings_.clients) * settings_.iterations;
    for (size_t received = 0; received < total;) {
      if (settings_.events && !endpoint_.await_event()) return false;
      if (!take_received(received)) return false;
    }
    return endpoint_.await_sent();
  }

  // Waits until all ends have received everything, before any destroys its queues: the server's messages to a
  // client may come through another client's queue pair.
  bool agree_to_end() { return settings_.serves() ? hear_ends() && tell_ends() : tell_ends() && hear_ends(); }

 private:
  bool join_server() {
    Peer peer;
    peer.connection = connect_to(settings_.server, settings_.tcp_port);
    return peer.connection && tell_address(peer, 0) && hear_address(peer, 0) && add(std::move(peer));
  }

  bool await_clients() {
    const UniqueFd listening = listen_on(settings_.tcp_port, static_cast<int>(settings_.clients));
    if (!listening) return false;
    for (size_t i = 0; i < settings_.clients; ++i) {
      Peer peer;
      peer.connection = accept_on(listening, verbena::format(" for client {}", i));
      if (!peer.connection || !hear_address(peer, i) || !tell_address(peer, i) || !add(std::move(peer)))
        return false;
    }
    return true;
  }

  bool add(Peer peer) {
    peers_.push_back(std::move(peer));
    return endpoint_.connect(peers_.size() - 1, peers_.back().address);
  }

  bool tell_address(const Peer& peer, size_t index) {
    const auto address = endpoint_.address(index);
    if (!address) return false;
    print("local", *address);
    if (write_all(peer.connection, address->encoded())) return true;
    complain_of(errno, "Couldn't send local address");
    return false;
  }

  bool hear_address(Peer& peer, size_t index) {
    std::string message;
    if (!read_exactly(peer.connection, XrcAddress::kLength, message)) {
      complain(verbena::format("client read: {}", reason(errno)));
      complain(verbena::format("{}/{}: Couldn't read remote address [{}]", message.size(),
                               XrcAddress::kLength, index));
      return false;
    }
    const auto address = XrcAddress::decode(message);
    if (!address) {
      complain("The peer's address is none", verbena::format("is it {} that runs there?", program_.name));
      return false;
    }
    peer.address = *address;
    print("remote", peer.address);
    return true;
  }

  void print(const char* whose, const XrcAddress& address) {
    const std::string gid = gid_text(address.gid);
    output_.text("%8s: LID %04x, QPN RECV %06x SEND %06x, PSN %06x, SRQN %06x, GID %s\n", whose, address.lid,
                 address.receiving_qpn, address.sending_qpn, address.psn, address.srqn, gid.c_str());
    output_.object()[whose].push_back({{"lid", address.lid},
                                       {"receiving_qpn", address.receiving_qpn},
                                       {"sending_qpn", address.sending_qpn},
                                       {"psn", address.psn},
                                       {"srqn", address.srqn},
                                       {"gid", gid}});
    std::fflush(stdout);  // shows a reader of the pipe the progress
  }

  // Sends through the queue pairs of all peers in turn; signals the last send.
  bool send(size_t index) {
    Peer& peer = peers_[index];
    const size_t queue_pair = (index + peer.sent) % peers_.size();
    ++peer.sent;
    return endpoint_.post_send(peer.address, queue_pair, peer.sent >= settings_.iterations);
  }

  // Handles all received messages and replies to each.
  bool take_received(size_t& received) {
    for (;;) {
      std::optional<size_t> from;
      if (!endpoint_.poll_received(from)) return false;
      if (!from) return true;
      ++received;
      if (!endpoint_.post_receive()) return false;
      if (peers_[*from].sent < settings_.iterations && !send(*from)) return false;
    }
  }

  bool hear_ends() {
    for (const Peer& peer : peers_) {
      std::string message;
      if (!read_exactly(peer.connection, kEnd.size(), message)) {
        complain(verbena::format("client read: {}", reason(errno)));
        complain(verbena::format("{}/{}: Couldn't read remote termination ack", message.size(), kEnd.size()));
        return false;
      }
      if (message != kEnd) {
        complain("Invalid termination ack was accepted");
        return false;
      }
    }
    return true;
  }

  bool tell_ends() {
    for (const Peer& peer : peers_) {
      if (write_all(peer.connection, kEnd)) continue;
      complain_of(errno, "Couldn't send termination ack");
      return false;
    }
    return true;
  }

  const PingpongProgram& program_;
  const Settings& settings_;
  XrcEndpoint& endpoint_;
  Output& output_;
  std::vector<Peer> peers_;
};

}  // namespace

bool play_over_xrc(const PingpongProgram& program, const Settings& settings, ibv_device* device,
                   Output& output) {
  XrcEndpoint endpoint(program, settings);
  XrcGame game(program, settings, endpoint, output);
  if (!endpoint.open(device) || !game.connect()) return false;
  const auto start = std::chrono::steady_clock::now();
  if (!game.play()) return false;
  output.object()["clients"] = settings.clients;
  add_figures(settings, std::chrono::steady_clock::now() - start, output);
  if (!game.agree_to_end() || !endpoint.close()) return false;
  output.text("success\n");
  return true;
}

}  // namespace verbena::rdma_core
