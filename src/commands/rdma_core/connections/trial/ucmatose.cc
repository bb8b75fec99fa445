// SPDX-License-Identifier: Apache-2.0
// ucmatose: opens many reliable connections and sends messages both ways on each.
#include <utility>

#include "base/format.h"
#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

class ConnectedTrial final : public Trial {
 public:
  explicit ConnectedTrial(Plan plan) : Trial("cmatose", IBV_QPT_RC, std::move(plan)) {
    output_.object()["program"] = "ucmatose";
  }

 private:
  void serve() override {
    listen();
    serve_until_connected();
    if (plan_.messages > 0) {
      const Stopwatch watch;
      output_.text("initiating data transfers\n");
      send(0);
      output_.text("completing sends\n");
      await_sends("messages are not acknowledged");
      output_.text("receiving data transfers\n");
      receive();
      output_.text("data transfers complete\n");
      transferring_ = watch.seconds();
    }
    if (plan_.migrate) migrate();
    output_.text("%s: disconnecting\n", name_);
    disconnect_all();
    const int status = status_of([this] { serve_until_disconnected(); });
    output_.text("disconnected\n");
    if (status != 0) throw Failure{status};
  }

  void call() override {
    begin_calls();
    const int status = status_of([this] {
      serve_until_connected();
      exchange();
    });
    if (status != 0) {
      disconnect_all();  // at once: the server may be waiting for this end
    } else if (plan_.migrate) {
      migrate();
    }
    serve_until_disconnected();
    if (status != 0) throw Failure{status};
  }

  void exchange() {
    if (plan_.messages == 0) return;
    const Stopwatch watch;
    output_.text("receiving data transfers\n");
    receive();
    output_.text("sending replies\n");
    send(0);
    output_.text("data transfers complete\n");
    transferring_ = watch.seconds();
  }

  void receive() {
    await_receives([this] {
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

  void established(Node& node, const rdma_ud_param&) override {
    connected(node);
    ++disconnects_left_;
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

  void serve_until_disconnected() {
    serve_while(disconnects_left_, [this] {
      return verbena::format("{} connections are not ended by the other host", disconnects_left_);
    });
  }

  void migrate() {
    output_.text("migrating to new event channel\n");
    Channel next(rdma_create_event_channel());
    if (!next) fail_call("failed to create event channel");
    const auto move = [&](const Id& id) { return id ? rdma_migrate_id(id.get(), next.get()) : 0; };
    bool moved = move(listener_) == 0;
    for (const auto& node : nodes_) moved = moved && move(node->id) == 0;
    if (!moved) {
      // Ids may be on either channel now, so both stay as long as the ids.
      half_migrated_ = std::move(next);
      fail_call("failure migrating to channel");
    }
    channel_ = std::move(next);
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
