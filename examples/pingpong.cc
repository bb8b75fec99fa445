// SPDX-License-Identifier: Apache-2.0
// Sends a message back and forth over each transport, and prints the time of a round trip. Shows the lower
// layer, verbena/verbs.hpp: objects, the exchange of addresses, requests and completions.
//
//   verbena run pingpong srq 7471              # in one shell: waits for the other
//   verbena run pingpong srq 7471 localhost    # in another shell; a number after HOST: so many round trips
//
// TRANSPORT is rc (reliable), uc (unreliable), ud (datagrams), srq (reliable, with a shared receive queue) or
// xrc (reliable, with a queue pair for each direction). Leaves out: repetition of messages that uc or ud
// loses, sleep instead of polling, and more than one message under way.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <endian.h>
#include <verbena/verbs.hpp>

#include "exchange.hpp"

namespace {

using namespace verbena;
using namespace std::chrono_literals;

constexpr int kRounds = 10'000;  // unless the program is told another number
constexpr std::size_t kMessage = 64;
constexpr std::size_t kRouteHeader = 40;  // of UD: it comes before each message that is received
constexpr std::uint32_t kQkey = 0x11111111;

// The addresses that the peer needs.
struct address {
  endpoint sender, receiver;  // differ for xrc only
  std::uint32_t srq_number = 0;
};

class player {
 public:
  explicit player(const std::string& transport_name) : name_(transport_name) {
    if (name_ == "srq") shared_ = domain_.make_srq({.max_wr = 1}).value();
    if (name_ == "xrc") {
      xrc_ = device_.make_xrc_domain().value();
      shared_ = domain_.make_srq({.max_wr = 1, .domain = &*xrc_, .xrc_cq = &queue_}).value();
      receiver_ = xrc_->make_receiver().value();
    }
    const transport kind = name_ == "uc"    ? uc
                           : name_ == "ud"  ? ud
                           : name_ == "xrc" ? transport::xrc_send
                                            : rc;
    const srq* const own_receives = name_ == "srq" ? &*shared_ : nullptr;
    sender_ = domain_.make_qp(kind, {.send_cq = queue_, .srq = own_receives}).value();
  }

  // Connects to the peer. Afterwards both ends have posted a receive.
  void connect(example::exchange& peer) {
    const endpoint mine = sender_->local_endpoint().value();
    const endpoint receiver = receiver_ ? receiver_->local_endpoint().value() : mine;
    there_ = peer.swap(address{mine, receiver, xrc_ ? htobe32(shared_->number().value()) : 0});
    if (name_ == "ud") {
      sender_->activate(kQkey).value();
      route_ = domain_.make_address(there_.sender.gid()).value();
    } else {
      sender_->connect(there_.receiver).value();
      if (receiver_) receiver_->connect(there_.sender).value();
    }
    post_receive();
    peer.swap('r');  // ready: an unreliable message must not come before the receive
  }

  void post_receive() { (shared_ ? shared_->post(recv(incoming_)) : sender_->post(recv(incoming_))).value(); }
  void send_message() {
    auto request = send(outgoing_).signaled();
    if (route_) request = request.to({*route_, there_.sender.qp_num(), kQkey});
    if (xrc_) request = request.to_srq(be32toh(there_.srq_number));
    sender_->post(request).value();
  }
  // Waits until so many messages have left, and have come, in total.
  void wait(int sent, int received) {
    const auto give_up = std::chrono::steady_clock::now() + 10s;
    while (sent_ < sent || received_ < received) {
      for (const completion& each : queue_.poll()) {
        if (!each) throw verbena::exception(each.error());
        ++(each.is_receive() ? received_ : sent_);
      }
      if (std::chrono::steady_clock::now() > give_up)
        throw std::runtime_error("no message has come for ten seconds");
    }
  }

 private:
  const std::string name_;
  context device_ = open().value();
  pd domain_ = device_.make_pd().value();
  cq queue_ = device_.make_cq(16).value();
  region outgoing_ = domain_.allocate(kMessage).value();
  region incoming_ = domain_.allocate(kRouteHeader + kMessage).value();
  std::optional<xrc_domain> xrc_;
  std::optional<srq> shared_;
  std::optional<qp> sender_;    // receives as well, unless the transport is xrc
  std::optional<qp> receiver_;  // xrc
  std::optional<address_handle> route_;
  address there_;
  int sent_ = 0, received_ = 0;
};

void run(const std::string& transport_name, const std::string& port, const char* host, int rounds) {
  player own(transport_name);
  example::exchange peer =
      host != nullptr ? example::exchange::connect(host, port) : example::exchange::accept_one(port);
  own.connect(peer);
  const bool begins = host != nullptr;
  if (const int theirs = peer.swap(rounds); !begins) rounds = theirs;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    if (begins) own.send_message();
    own.wait(begins ? round + 1 : round, round + 1);
    own.post_receive();  // before the answer: the peer's next message follows it
    if (!begins) own.send_message();
  }
  own.wait(rounds, rounds);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %d round trips, %.2f us each\n", transport_name.c_str(), rounds, took.count() / rounds);
  peer.swap('e');  // end: both queue pairs exist until both ends are done
}

}  // namespace

int main(int argc, char** argv) {
  const std::string transport_name = argc > 1 ? argv[1] : "";
  const bool is_known = transport_name == "rc" || transport_name == "uc" || transport_name == "ud" ||
                        transport_name == "srq" || transport_name == "xrc";
  const int rounds = argc > 4 ? std::atoi(argv[4]) : kRounds;
  if (!is_known || argc < 3 || argc > 5 || rounds < 1) {
    std::fputs("usage: pingpong rc|uc|ud|srq|xrc PORT [HOST [ROUNDS]]\n", stderr);
    return 1;
  }
  try {
    run(transport_name, argv[2], argc > 3 ? argv[3] : nullptr, rounds);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "pingpong: %s\n", failed.what());
    return 1;
  }
}
