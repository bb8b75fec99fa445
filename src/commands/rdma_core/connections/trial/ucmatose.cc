// SPDX-License-Identifier: Apache-2.0
// ucmatose: opens many reliable connections and sends messages both ways on each.
#include <utility>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

class ConnectedTrial final : public Trial {
 public:
  explicit ConnectedTrial(Plan plan) : Trial("cmatose", IBV_QPT_RC, std::move(plan)) {
    output_.object()["program"] = "ucmatose";
  }

 private:
  int serve() override {
    if (const int status = listen(); status != 0) return status;
    if (const int status = serve_until_connected(); status != 0) return status;
    if (plan_.messages > 0) {
      const Stopwatch watch;
      output_.text("initiating data transfers\n");
      if (const int status = send(); status != 0) return status;
      output_.text("completing sends\n");
      if (const int status = await_sends("messages are not acknowledged"); status != 0) return status;
      output_.text("receiving data transfers\n");
      if (const int status = receive(); status != 0) return status;
      output_.text("data transfers complete\n");
      transferring_ = watch.seconds();
    }
    if (plan_.migrate && migrate() != 0) return -1;
    output_.text("%s: disconnecting\n", name_);
    disconnect_all();
    const int status = serve_until_disconnected();
    output_.text("disconnected\n");
    return status;
  }

  int call() override {
    if (const int status = begin_calls(); status != 0) return status;
    int status = serve_until_connected();
    if (status == 0) status = exchange();
    // After a failure disconnect at once: the server may be waiting for this end.
    if (status != 0) disconnect_all();
    if (status == 0 && plan_.migrate && migrate() != 0) return -1;
    const int parted = serve_until_disconnected();
    return parted != 0 ? parted : status;
  }

  int exchange() {
    if (plan_.messages == 0) return 0;
    const Stopwatch watch;
    output_.text("receiving data transfers\n");
    if (const int status = receive(); status != 0) return status;
    output_.text("sending replies\n");
    if (const int status = send(); status != 0) return status;
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
    return 0;
  }

  int send() {
    return for_each_node([](Node& node) { return node.post_sends(0); });
  }

  int receive() {
    return await_receives([this] {
      return verbena::format(
          "not all of {} messages on each connection came (do both ends have the same -C?)", plan_.messages);
    });
  }

  int accept(Node& node) override { return rdma_accept(node.id.get(), nullptr); }

  rdma_conn_param connection() const override {
    rdma_conn_param wanted = {};
    wanted.responder_resources = 1;
    wanted.initiator_depth = 1;
    wanted.retry_count = 5;
    return wanted;
  }

  int established(Node& node, const rdma_ud_param&) override {
    connected(node);
    ++disconnects_left_;
    return 0;
  }

  void disconnected(rdma_cm_id* id) override {
    rdma_disconnect(id);
    --disconnects_left_;
  }

  void disconnect_all() {
    for (const auto& node : nodes_) {
      if (node->connected) rdma_disconnect(node->id.get());
    }
  }

  int serve_until_disconnected() {
    return serve_while(disconnects_left_, [this] {
      return verbena::format("{} connections are not ended by the other host", disconnects_left_);
    });
  }

  int migrate() {
    output_.text("migrating to new event channel\n");
    Channel next(rdma_create_event_channel());
    if (!next) return complain_of_call("failed to create event channel");
    const auto move = [&](const Id& id) { return id ? rdma_migrate_id(id.get(), next.get()) : 0; };
    bool moved = move(listener_) == 0;
    for (const auto& node : nodes_) moved = moved && move(node->id) == 0;
    if (!moved) {
      // Ids may be on either channel now, so both stay as long as the ids.
      half_migrated_ = std::move(next);
      return complain_of_call("failure migrating to channel");
    }
    channel_ = std::move(next);
    return 0;
  }

  Channel half_migrated_;
};

}  // namespace

int ucmatose(int argc, char** argv) {
  Plan plan;
  plan.port = "7471";
  std::vector<Option> options = two_way_options(plan, {"tcp", RDMA_PS_TCP}, {"ib", RDMA_PS_IB});
  options.insert(options.end(),
                 {text('p', nullptr, plan.port), octet('a', [&](uint8_t value) { plan.ack_timeout = value; }),
                  flag('m', nullptr, plan.migrate)});
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) return print_usage("ucmatose", argv[0], letters.next);
  plan.json = letters.json;
  if (plan.destination.empty()) plan.hints.ai_flags |= RAI_PASSIVE;
  return ConnectedTrial(std::move(plan)).run();
}

}  // namespace verbena::rdma_core
