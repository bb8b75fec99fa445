// SPDX-License-Identifier: Apache-2.0
// cmtime: measures the duration of each step of connecting, for many connections at a time.
#include <algorithm>
#include <cstddef>
#include <map>

#include "base/format.h"
#include "commands/rdma_core/connections/cm.h"
#include "commands/rdma_core/connections/cmtime/steps.h"
#include "commands/rdma_core/connections/command_line.h"

namespace verbena::rdma_core {
namespace {

// The options of cmtime. `milliseconds` is the timeout for resolving an address or a route. `retries` is how
// often that is repeated, and the retry count of the QPs.
struct TimingLine {
  Ends ends{.source = {}, .destination = {}, .port = "7471"};
  int connections = 100;
  int retries = 2;
  int milliseconds = 2000;
  bool json = false;
};

// Returns the attributes with which both ends create queue pairs: RC, with one work request per queue.
ibv_qp_init_attr timed_queue_pair() {
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = 1;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  return wanted;
}

// Finds the addresses of one end: of the server with RAI_PASSIVE, else of the client. `what` begins the
// message of a failure.
AddressInfo find_timed_addresses(const TimingLine& line, int flags, const char* what, const Output& output) {
  rdma_addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_qp_type = IBV_QPT_RC;
  return find_addresses(line.ends, hints, what, output);
}

// Accepts connections until it is killed.
class Server {
 public:
  Server(const TimingLine& line, rdma_event_channel* channel)
      : line_(line), channel_(channel), output_(line.json) {}

  [[noreturn]] void run() {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) fail_of_call("listen request failed");
    const Id listener(id);
    const AddressInfo addresses = find_timed_addresses(line_, RAI_PASSIVE, "getrdmaaddr error", output_);
    if (rdma_bind_addr(id, addresses->ai_src_addr) != 0) fail_of_call("bind address failed");
    if (rdma_listen(id, 0) != 0) fail_of_call("failure trying to listen");
    while (true) serve_next();
  }

 private:
  void serve_next() {
    Event event = next_event(channel_);
    if (!event) fail_of_call("failure in rdma_get_cm_event in process_server_events");
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    event.reset();  // an id cannot be destroyed before its events are acknowledged
    switch (type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        accept(id);
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        rdma_disconnect(id);
        connections_.erase(id);
        break;
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
        connections_.erase(id);
        break;
      default:
        break;
    }
  }

  void accept(rdma_cm_id* id) {
    ibv_qp_init_attr wanted = timed_queue_pair();
    Connection connection;
    connection.id.reset(id);
    if (rdma_create_qp(id, nullptr, &wanted) != 0) {
      failed("failure creating qp");
    } else {
      connection.pair.reset(id);
      if (rdma_accept(id, nullptr) == 0) {
        connections_.emplace(id, std::move(connection));
        return;
      }
      failed("failure accepting");
    }
    tell_failure(output_, "failing connection request");
    rdma_reject(id, nullptr, 0);
  }

  struct Connection {
    Id id;
    QueuePairOfId pair;
  };

  const TimingLine& line_;
  rdma_event_channel* channel_;
  Output output_;
  std::map<rdma_cm_id*, Connection> connections_;
};

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
    const int error =
        status_of([this] { addresses_ = find_timed_addresses(line_, 0, "getaddrinfo error", output_); });
    if (error == 0) connect_all();
    destroy_all();
    output_.object()["program"] = "cmtime";
    report(evaluate(whole_, spans_, !line_.ends.source.empty()), output_);
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
    return for_all(
        ConnectStep::kCreateId, "creating id",
        [this](Node& node) {
          rdma_cm_id* id = nullptr;
          const int error = rdma_create_id(channel_, &id, &node, RDMA_PS_TCP);
          node.id.reset(id);
          return error;
        },
        "failure creating id", true);
  }

  void connect_all() {
    if (!line_.ends.source.empty()) {
      for_all(
          ConnectStep::kBind, "binding source address",
          [this](Node& node) { return rdma_bind_addr(node.id.get(), addresses_->ai_src_addr); },
          "failure bind addr", true);
    }
    for_all(
        ConnectStep::kResolveAddress, "resolving address",
        [this](Node& node) {
          node.retries = line_.retries;
          return resolve_address(node);
        },
        "failure getting addr");
    for_all(
        ConnectStep::kResolveRoute, "resolving route",
        [this](Node& node) {
          node.retries = line_.retries;
          return rdma_resolve_route(node.id.get(), line_.milliseconds);
        },
        "failure resolving route");
    for_all(
        ConnectStep::kCreateQueuePair, "creating qp",
        [](Node& node) {
          ibv_qp_init_attr wanted = timed_queue_pair();
          if (rdma_create_qp(node.id.get(), nullptr, &wanted) != 0) return -1;
          node.pair.reset(node.id.get());
          return 0;
        },
        "failure creating qp", true);
    for_all(
        ConnectStep::kConnect, "connecting", [this](Node& node) { return connect(node); },
        "failure rconnecting");
    connected_ = std::ranges::count(nodes_, false, &Node::failed);
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

  // Prints `text`, and performs a step for each connection. With `at_once` the call completes the step,
  // otherwise an event does. False if the call failed for all connections.
  template <class Call>
  bool for_all(ConnectStep step, const char* text, const Call& call, const char* complaint,
               bool at_once = false) {
    output_.text("%s\n", text);
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
  ptrdiff_t connected_ = 0;
  int status_ = 0;  // of the last call; becomes the exit status
  bool told_ = false;
};

constexpr std::array<const char*, kConnectSteps> kNames = {"create id",     "bind addr", "resolve addr",
                                                           "resolve route", "create qp", "connect",
                                                           "disconnect",    "destroy"};

// Shown as the shortest duration if no connection completed a step.
constexpr double kNone = 1e9;

}  // namespace

int cmtime(int argc, char** argv) {
  TimingLine line;
  const Letters letters =
      parse_letters(argc, argv,
                    {text('s', nullptr, line.ends.destination), text('b', nullptr, line.ends.source),
                     decimal('c', line.connections, 0, 1 << 20), text('p', nullptr, line.ends.port),
                     decimal('r', line.retries, 0, 255), decimal('t', line.milliseconds, 0)});
  if (letters.next != Next::kGoOn) return print_usage("cmtime", argv[0], letters.next);
  line.json = letters.json;
  const Channel channel = first_channel();
  if (!channel) return 1;
  if (line.ends.destination.empty()) Server(line, channel.get()).run();
  return Client(line, channel.get()).run();
}

std::optional<double> Span::microseconds() const {
  if (!begun || !done) return std::nullopt;
  return std::chrono::duration<double, std::micro>(*done - *begun).count();
}

std::vector<StepTimes> evaluate(const Spans& whole, const std::vector<Spans>& connections, bool with_bind) {
  std::vector<StepTimes> steps;
  for (size_t i = 0; i < kConnectSteps; ++i) {
    if (i == static_cast<size_t>(ConnectStep::kBind) && !with_bind) continue;
    const double total = whole[i].microseconds().value_or(0);
    const double each = connections.empty() ? 0 : total / static_cast<double>(connections.size());
    StepTimes times = {kNames[i], total, 0, kNone, each};
    for (const Spans& connection : connections) {
      const auto took = connection[i].microseconds();
      if (!took) continue;
      times.longest = std::max(times.longest, *took);
      times.shortest = std::min(times.shortest, *took);
    }
    steps.push_back(times);
  }
  return steps;
}

void report(const std::vector<StepTimes>& steps, Output& output) {
  output.text("step              total ms     max ms     min us  us / conn\n");
  auto& list = output.object()["steps"] = nlohmann::ordered_json::array();
  for (const StepTimes& step : steps) {
    output.text("%-13s: %11.2f%11.2f%11.2f%11.2f\n", step.name, step.total / 1000, step.longest / 1000,
                step.shortest, step.each);
    nlohmann::ordered_json object = {{"step", step.name}, {"total_usec", step.total}};
    if (step.shortest < kNone) {
      object["max_usec"] = step.longest;
      object["min_usec"] = step.shortest;
    }
    object["usec_per_connection"] = step.each;
    list.push_back(object);
  }
}

}  // namespace verbena::rdma_core
