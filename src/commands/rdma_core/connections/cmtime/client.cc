// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "base/format.h"
#include "commands/rdma_core/connections/addresses.h"
#include "commands/rdma_core/connections/cmtime/steps.h"
#include "commands/rdma_core/connections/events.h"

namespace verbena::rdma_core {
namespace {

class Client {
 public:
  Client(const TimingLine& line, rdma_event_channel* channel)
      : line_(line),
        channel_(channel),
        output_(line.json),
        nodes_(static_cast<size_t>(line.connections)),
        spans_(nodes_.size()) {
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].spans = &spans_[i];
  }

  int run() {
    if (!create()) return -1;
    const int error = find_timed_addresses(line_, false, "getaddrinfo", output_, addresses_);
    if (error == 0) connect_all();
    destroy_all();
    output_.object()["program"] = "cmtime";
    report(evaluate(whole_, spans_, !line_.source.empty()), output_);
    if (error != 0) return error;
    finish();
    return status_;
  }

 private:
  struct Node {
    Id id;
    QueuePairOfId pair;
    Spans* spans = nullptr;
    int retries = 0;
    bool failed = false;
  };

  static Span& span(Node& node, ConnectStep step) { return (*node.spans)[static_cast<size_t>(step)]; }

  bool create() {
    output_.text("creating id\n");
    return for_all(
        ConnectStep::kCreateId,
        [this](Node& node) {
          rdma_cm_id* id = nullptr;
          const int error = rdma_create_id(channel_, &id, &node, RDMA_PS_TCP);
          node.id.reset(id);
          return error;
        },
        "failure creating id", true);
  }

  void connect_all() {
    if (!line_.source.empty()) {
      output_.text("binding source address\n");
      for_all(
          ConnectStep::kBind,
          [this](Node& node) { return rdma_bind_addr(node.id.get(), addresses_->ai_src_addr); },
          "failure bind addr", true);
    }
    output_.text("resolving address\n");
    for_all(
        ConnectStep::kResolveAddress,
        [this](Node& node) {
          node.retries = line_.retries;
          return resolve_address(node);
        },
        "failure getting addr");
    output_.text("resolving route\n");
    for_all(
        ConnectStep::kResolveRoute,
        [this](Node& node) {
          node.retries = line_.retries;
          return rdma_resolve_route(node.id.get(), line_.milliseconds);
        },
        "failure resolving route");
    output_.text("creating qp\n");
    for_all(
        ConnectStep::kCreateQueuePair,
        [](Node& node) {
          ibv_qp_init_attr wanted = timed_queue_pair();
          if (rdma_create_qp(node.id.get(), nullptr, &wanted) != 0) return -1;
          node.pair.reset(node.id.get());
          return 0;
        },
        "failure creating qp", true);
    output_.text("connecting\n");
    for_all(
        ConnectStep::kConnect, [this](Node& node) { return connect(node); }, "failure rconnecting");
    connected_ = count_good();
    output_.text("disconnecting\n");
    disconnect_all();
  }

  int resolve_address(Node& node) {
    return rdma_resolve_addr(node.id.get(), addresses_->ai_src_addr, addresses_->ai_dst_addr,
                             line_.milliseconds);
  }

  int connect(Node& node) {
    rdma_conn_param wanted = {};
    wanted.responder_resources = 1;
    wanted.initiator_depth = 1;
    wanted.retry_count = static_cast<uint8_t>(line_.retries);
    wanted.private_data = addresses_->ai_connect;
    wanted.private_data_len = static_cast<uint8_t>(addresses_->ai_connect_len);
    return rdma_connect(node.id.get(), &wanted);
  }

  // Disconnects without waiting for the peers' replies: only the call is timed.
  void disconnect_all() {
    Span& all = whole_[static_cast<size_t>(ConnectStep::kDisconnect)];
    all.begin();
    for (Node& node : nodes_) {
      if (node.failed) continue;
      span(node, ConnectStep::kDisconnect).begin();
      rdma_disconnect(node.id.get());
      node.pair.reset();
      serve_at_hand();
    }
    all.end();
    serve_at_hand();
  }

  void destroy_all() {
    output_.text("destroying id\n");
    Span& all = whole_[static_cast<size_t>(ConnectStep::kDestroy)];
    all.begin();
    for (Node& node : nodes_) {
      span(node, ConnectStep::kDestroy).begin();
      node.pair.reset();
      node.id.reset();
      span(node, ConnectStep::kDestroy).end();
    }
    all.end();
  }

  // Performs a step for each connection. With `at_once` the call completes the step, otherwise an event does.
  // False if the call failed for all connections.
  template <class Call>
  bool for_all(ConnectStep step, const Call& call, const char* complaint, bool at_once = false) {
    Span& all = whole_[static_cast<size_t>(step)];
    all.begin();
    bool any = nodes_.empty();
    for (Node& node : nodes_) {
      if (node.failed) continue;
      span(node, step).begin();
      status_ = call(node);
      if (status_ != 0) {
        node.failed = true;
        status_ = rdma_core::failed(complaint);
        continue;
      }
      any = true;
      if (at_once) {
        span(node, step).end();
        continue;
      }
      ++under_way_;
      serve_at_hand();
    }
    wait_for_rest();
    all.end();
    return any;
  }

  void wait_for_rest() {
    Patience patience([this] { return verbena::format("{} connections have no answer yet", under_way_); });
    while (under_way_ > 0) {
      const Event event = next_event(channel_, patience);
      if (!event) {
        rdma_core::failed("failure in rdma_get_cm_event in process_server_events");
        under_way_ = 0;
        return;
      }
      take(*event);
    }
  }

  void serve_at_hand() {
    while (const Event event = event_at_hand(channel_)) take(*event);
  }

  void take(const rdma_cm_event& event) {
    Node& node = *static_cast<Node*>(event.id->context);
    switch (event.event) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        return done(node, ConnectStep::kResolveAddress);
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return done(node, ConnectStep::kResolveRoute);
      case RDMA_CM_EVENT_ESTABLISHED:
        return done(node, ConnectStep::kConnect);
      case RDMA_CM_EVENT_DISCONNECTED:
        span(node, ConnectStep::kDisconnect).end();
        return;
      case RDMA_CM_EVENT_ADDR_ERROR:
        if (node.retries-- > 0 && resolve_address(node) == 0) return;
        return fail(node, ConnectStep::kResolveAddress, event, "");
      case RDMA_CM_EVENT_ROUTE_ERROR:
        if (node.retries-- > 0 && rdma_resolve_route(node.id.get(), line_.milliseconds) == 0) return;
        return fail(node, ConnectStep::kResolveRoute, event, "");
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED:
        return fail(node, ConnectStep::kConnect, event, "event: ");
      default:
        return;
    }
  }

  void done(Node& node, ConnectStep step) {
    span(node, step).end();
    --under_way_;
  }

  void fail(Node& node, ConnectStep step, const rdma_cm_event& event, const char* before) {
    tell_failure(output_,
                 verbena::format("{}{}, error: {}", before, rdma_event_str(event.event), event.status),
                 told_ ? "" : remedy_for(event.event));
    told_ = true;
    node.failed = true;
    done(node, step);
  }

  int count_good() const {
    int good = 0;
    for (const Node& node : nodes_) good += node.failed ? 0 : 1;
    return good;
  }

  void finish() {
    auto& object = output_.object();
    object["source"] = shown(addresses_->ai_src_addr);
    object["destination"] = shown(addresses_->ai_dst_addr);
    object["connections"] = line_.connections;
    object["connected"] = connected_;
    output_.finish();
  }

  const TimingLine& line_;
  rdma_event_channel* channel_;
  Output output_;
  AddressInfo addresses_;
  std::vector<Node> nodes_;
  std::vector<Spans> spans_;
  Spans whole_;
  int under_way_ = 0;
  int connected_ = 0;
  int status_ = 0;  // of the last call; becomes the exit status
  bool told_ = false;
};

}  // namespace

int run_timed_client(const TimingLine& line, rdma_event_channel* channel) {
  return Client(line, channel).run();
}

}  // namespace verbena::rdma_core
