// SPDX-License-Identifier: Apache-2.0
// ucmatose: opens many reliable connections and sends messages both ways on each.
#include <cstdio>

#include <strings.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/programs.h"
#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

class ConnectedTrial final : public Trial {
 public:
  explicit ConnectedTrial(Plan plan) : Trial("cmatose", IBV_QPT_RC, std::move(plan)) {
    output_.object()["program"] = "ucmatose";
  }

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
    if (const int status = serve_until_connected(); status != 0) return status;
    if (plan_.messages > 0) {
      const Stopwatch watch;
      output_.text("initiating data transfers\n");
      if (const int status = send(); status != 0) return status;
      output_.text("completing sends\n");
      Patience patience([] { return "messages are not acknowledged"; });
      const auto sent = [&](Node& node) { return node.connected ? node.await_sends(patience) : 0; };
      if (const int status = for_each_node(sent); status != 0) return status;
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

  int call() {
    if (const int status = find_both_ends("getaddrinfo"); status != 0) return status;
    output_.text("%s: connecting\n", name_);
    if (const int status = resolve_addresses(); status != 0) return status;
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
    Patience patience([this] {
      return verbena::format(
          "not all of {} messages on each connection came (do both ends have the same -C?)", plan_.messages);
    });
    return for_each_node([&](Node& node) { return node.connected ? node.await_receives(patience) : 0; });
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
    node.connected = true;
    --connects_left_;
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

void print_ucmatose_usage(const char* program) {
  std::printf("usage: %s\n", program);
  std::printf("\t[-s server_address]\n");
  std::printf("\t[-b bind_address]\n");
  std::printf("\t[-f address_format]\n");
  std::printf("\t    name, ip, ipv6, or gid\n");
  std::printf("\t[-P port_space]\n");
  std::printf("\t    tcp or ib\n");
  std::printf("\t[-c connections]\n");
  std::printf("\t[-C message_count]\n");
  std::printf("\t[-S message_size]\n");
  std::printf("\t[-t type_of_service]\n");
  std::printf("\t[-p port_number]\n");
  std::printf("\t[-m(igrate)]\n");
  std::printf("\t[-a ack_timeout]\n");
  std::printf("%s", kJsonUsage);
}

void take_stream_space(const char* word, rdma_addrinfo& hints) {
  if (strncasecmp("ib", word, 2) == 0) {
    hints.ai_port_space = RDMA_PS_IB;
  } else if (strncasecmp("tcp", word, 3) != 0) {
    complain("Warning: unknown port space format", "tcp and ib are known");
  }
}

}  // namespace

int ucmatose(int argc, char** argv) {
  Plan plan;
  plan.port = "7471";
  plan.hints.ai_port_space = RDMA_PS_TCP;
  std::vector<Option> options = common_options(plan);
  options.insert(
      options.end(),
      {text('s', nullptr, plan.destination),
       taken('f', [&](const char* word) { take_format(word, plan.hints); }),
       taken('P', [&](const char* word) { take_stream_space(word, plan.hints); }),
       octet('t', [&](uint8_t value) { plan.tos = value; }), text('p', nullptr, plan.port),
       octet('a', [&](uint8_t value) { plan.ack_timeout = value; }), flag('m', nullptr, plan.migrate)});
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) {
    print_ucmatose_usage(argv[0]);
    if (letters.next == Next::kWrong) return 1;
    print_help("ucmatose");
    return 0;
  }
  plan.json = letters.json;
  if (plan.destination.empty()) plan.hints.ai_flags |= RAI_PASSIVE;
  return ConnectedTrial(std::move(plan)).run();
}

}  // namespace verbena::rdma_core
