// SPDX-License-Identifier: Apache-2.0
// udaddy: sends datagrams between queue pairs that librdmacm resolved by address.
#include <utility>

#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

class DatagramTrial final : public Trial {
 public:
  explicit DatagramTrial(Plan plan) : Trial("udaddy", IBV_QPT_UD, std::move(plan)) {}

 private:
  void serve() override {
    listen();
    // Serve the connected nodes even if others failed.
    status_of([this] { serve_until_connected(); });
    if (plan_.messages == 0) return;
    const Stopwatch watch;
    output_.text("receiving data transfers\n");
    receive();
    output_.text("sending replies\n");
    send(IBV_SEND_SIGNALED);
    await_sends("replies have not left");
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
  }

  void call() override {
    begin_calls();
    serve_until_connected();
    if (plan_.messages == 0) return;
    const Stopwatch watch;
    output_.text("initiating data transfers\n");
    send(0);
    output_.text("receiving data transfers\n");
    receive();
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
  }

  void receive() {
    await_receives(
        [] {
          return "not all messages came; datagrams that are lost never will (do both ends have the same -C?)";
        },
        [](Node& node, ibv_wc& first) {
          if (!node.reaches_remote()) node.reach_sender(first);
        });
  }

  int accept(Node& node) override {
    rdma_conn_param answer = {};
    answer.qp_num = node.id->qp->qp_num;
    if (rdma_accept(node.id.get(), &answer) != 0) return -1;
    connected(node);
    return 0;
  }

  void established(Node& node, const rdma_ud_param& other) override { reached(node, other); }
};

}  // namespace

int udaddy(int argc, char** argv) {
  Plan plan;
  plan.port = "7174";
  std::vector<Option> options = two_way_options(plan, {"udp", RDMA_PS_UDP}, {"ipoib", RDMA_PS_IPOIB});
  options.push_back(port_space_number(plan));
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) return print_usage("udaddy", argv[0], letters.next);
  plan.json = letters.json;
  if (plan.destination.empty()) plan.hints.ai_flags |= RAI_PASSIVE;
  return DatagramTrial(std::move(plan)).run();
}

}  // namespace verbena::rdma_core
