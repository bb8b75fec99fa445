// SPDX-License-Identifier: Apache-2.0
// udaddy: sends datagrams between queue pairs that librdmacm resolved by address.
#include <utility>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

class DatagramTrial final : public Trial {
 public:
  explicit DatagramTrial(Plan plan) : Trial("udaddy", IBV_QPT_UD, std::move(plan)) {}

 private:
  int serve() override {
    if (const int status = listen(); status != 0) return status;
    // Serve the connected nodes even if others failed.
    serve_until_connected();
    if (plan_.messages == 0) return 0;
    const Stopwatch watch;
    output_.text("receiving data transfers\n");
    if (const int status = receive(); status != 0) return status;
    output_.text("sending replies\n");
    if (const int status = send(IBV_SEND_SIGNALED); status != 0) return status;
    if (const int status = await_sends("replies have not left"); status != 0) return status;
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
    return 0;
  }

  int call() override {
    if (const int status = begin_calls(); status != 0) return status;
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
    return await_receives(
        [] {
          return "not all messages came; datagrams that are lost never will (do both ends have the same -C?)";
        },
        [](Node& node, ibv_wc& first) { return node.reaches_remote() ? 0 : node.reach_sender(first); });
  }

  int accept(Node& node) override {
    rdma_conn_param answer = {};
    answer.qp_num = node.id->qp->qp_num;
    if (rdma_accept(node.id.get(), &answer) != 0) return -1;
    connected(node);
    return 0;
  }

  int established(Node& node, const rdma_ud_param& other) override { return reached(node, other); }
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
