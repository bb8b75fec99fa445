// SPDX-License-Identifier: Apache-2.0
// udaddy: sends datagrams between queue pairs that librdmacm resolved by address.
#include <cstdio>
#include <utility>

#include <strings.h>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/programs.h"
#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

class DatagramTrial final : public Trial {
 public:
  explicit DatagramTrial(Plan plan) : Trial("udaddy", IBV_QPT_UD, std::move(plan)) {}

 private:
  int perform() override {
    const bool calls = needs_ids();
    output_.object()["role"] = calls ? "client" : "server";
    output_.text("%s: starting %s\n", name_, calls ? "client" : "server");
    const int status = calls ? call() : serve();
    listener_.reset();
    return status;
  }

  int serve() {
    if (const int status = listen(); status != 0) return status;
    // Serve the connected nodes even if others failed.
    serve_until_connected();
    if (plan_.messages == 0) return 0;
    const Stopwatch watch;
    output_.text("receiving data transfers\n");
    if (const int status = receive(); status != 0) return status;
    output_.text("sending replies\n");
    if (const int status = send(IBV_SEND_SIGNALED); status != 0) return status;
    Patience patience([] { return "replies have not left"; });
    const auto sent = [&](Node& node) { return node.connected ? node.await_sends(patience) : 0; };
    if (const int status = for_each_node(sent); status != 0) return status;
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
    return 0;
  }

  int call() {
    if (const int status = find_both_ends("getaddrinfo"); status != 0) return status;
    output_.text("%s: connecting\n", name_);
    if (const int status = resolve_addresses(); status != 0) return status;
    if (const int status = serve_until_connected(); status != 0) return status;
    if (plan_.messages == 0) return 0;
    const Stopwatch watch;
    output_.text("initiating data transfers\n");
    if (const int status = send(0); status != 0) return status;
    output_.text("receiving data transfers\n");
    if (const int status = receive(); status != 0) return status;
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
    return 0;
  }

  int send(unsigned flags) {
    return for_each_node([flags](Node& node) { return node.post_sends(flags); });
  }

  int receive() {
    Patience patience([] {
      return "not all messages came; datagrams that are lost never will (do both ends have the same -C?)";
    });
    return for_each_node([&](Node& node) {
      if (!node.connected) return 0;
      return node.await_receives(
          patience, [&node](ibv_wc& first) { return node.reaches_remote() ? 0 : node.reach_sender(first); });
    });
  }

  int accept(Node& node) override {
    rdma_conn_param answer = {};
    answer.qp_num = node.id->qp->qp_num;
    if (rdma_accept(node.id.get(), &answer) != 0) return -1;
    node.connected = true;
    --connects_left_;
    return 0;
  }

  rdma_conn_param connection() const override { return {}; }

  int established(Node& node, const rdma_ud_param& other) override {
    if (const int status = node.reach(other.ah_attr); status != 0) return status;
    node.remote_number = other.qp_num;
    node.remote_key = other.qkey;
    node.connected = true;
    --connects_left_;
    return 0;
  }
};

void print_udaddy_usage(const char* program) {
  std::printf("usage: %s\n", program);
  std::printf("\t[-s server_address]\n");
  std::printf("\t[-b bind_address]\n");
  std::printf("\t[-f address_format]\n");
  std::printf("\t    name, ip, ipv6, or gid\n");
  std::printf("\t[-P port_space]\n");
  std::printf("\t    udp or ipoib\n");
  std::printf("\t[-c connections]\n");
  std::printf("\t[-C message_count]\n");
  std::printf("\t[-S message_size]\n");
  std::printf("\t[-t type_of_service]\n");
  std::printf("\t[-p port_space - %#x for UDP (default), %#x for IPOIB]\n", RDMA_PS_UDP, RDMA_PS_IPOIB);
  std::printf("%s", kJsonUsage);
}

void take_datagram_space(const char* word, rdma_addrinfo& hints) {
  if (strncasecmp("ipoib", word, 5) == 0) {
    hints.ai_port_space = RDMA_PS_IPOIB;
  } else if (strncasecmp("udp", word, 3) != 0) {
    complain("Warning: unknown port space format", "udp and ipoib are known");
  }
}

}  // namespace

int udaddy(int argc, char** argv) {
  Plan plan;
  plan.port = "7174";
  plan.hints.ai_port_space = RDMA_PS_UDP;
  std::vector<Option> options = common_options(plan);
  options.insert(options.end(), {text('s', nullptr, plan.destination),
                                 taken('f', [&](const char* word) { take_format(word, plan.hints); }),
                                 taken('P', [&](const char* word) { take_datagram_space(word, plan.hints); }),
                                 octet('t', [&](uint8_t value) { plan.tos = value; }),
                                 number_to('p', nullptr, 0, 0xffff, [&](long long value) {
                                   plan.hints.ai_port_space = static_cast<int>(value);
                                 })});
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) {
    print_udaddy_usage(argv[0]);
    if (letters.next == Next::kWrong) return 1;
    print_help("udaddy");
    return 0;
  }
  plan.json = letters.json;
  if (plan.destination.empty()) plan.hints.ai_flags |= RAI_PASSIVE;
  return DatagramTrial(std::move(plan)).run();
}

}  // namespace verbena::rdma_core
