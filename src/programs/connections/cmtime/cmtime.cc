// SPDX-License-Identifier: Apache-2.0
// cmtime: how long each step of connecting takes, for many connections at a time.
#include <cerrno>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <netdb.h>

#include "programs/common/complaint.h"
#include "programs/connections/addresses.h"
#include "programs/connections/cmtime/steps.h"
#include "programs/connections/events.h"
#include "programs/connections/help.h"
#include "programs/connections/letters.h"
#include "programs/connections/programs.h"

namespace verbena::programs {
namespace {

struct Line {
  std::string destination;
  std::string source;
  std::string port = "7471";
  int connections = 100;
  int retries = 2;
  int milliseconds = 2000;
  bool json = false;
};

ibv_qp_init_attr queue_pair() {
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = 1;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  return wanted;
}

rdma_addrinfo hints(bool passive) {
  rdma_addrinfo wanted = {};
  wanted.ai_flags = passive ? RAI_PASSIVE : 0;
  wanted.ai_port_space = RDMA_PS_TCP;
  wanted.ai_qp_type = IBV_QPT_RC;
  return wanted;
}

int look_up(const Line& line, bool passive, const char* what, const Output& output, AddressInfo& found) {
  const int error = find_addresses(line.source, line.destination, line.port, hints(passive), found);
  const int reason = errno;
  if (error != 0) {
    tell_failure(output, fmt::format("{} error: {}", what, gai_strerror(error)),
                 error == -1 ? remedy_for_errno(reason) : "");
  }
  return error;
}

// Serves until it is killed.
class Server {
 public:
  Server(const Line& line, rdma_event_channel* channel)
      : line_(line), channel_(channel), output_(line.json) {}

  int run() {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return failed("listen request failed");
    const Id listener(id);
    AddressInfo addresses;
    if (const int error = look_up(line_, true, "getrdmaaddr", output_, addresses); error != 0) return error;
    if (rdma_bind_addr(id, addresses->ai_src_addr) != 0) return failed("bind address failed");
    if (rdma_listen(id, 0) != 0) return failed("failure trying to listen");
    while (serve_next()) {
    }
    return failed("failure in rdma_get_cm_event in process_server_events");
  }

 private:
  bool serve_next() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return false;
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);  // an id ends after its events only
    switch (type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        accept(id);
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        rdma_disconnect(id);
        end(id);
        break;
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
        end(id);
        break;
      default:
        break;
    }
    return true;
  }

  void accept(rdma_cm_id* id) {
    ibv_qp_init_attr wanted = queue_pair();
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

  void end(rdma_cm_id* id) { connections_.erase(id); }

  struct Connection {
    Id id;
    QueuePairOfId pair;
  };

  const Line& line_;
  rdma_event_channel* channel_;
  Output output_;
  std::map<rdma_cm_id*, Connection> connections_;
};

class Client {
 public:
  Client(const Line& line, rdma_event_channel* channel)
      : line_(line),
        channel_(channel),
        output_(line.json),
        nodes_(static_cast<size_t>(line.connections)),
        spans_(nodes_.size()) {
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].spans = &spans_[i];
  }

  int run() {
    if (!create()) return -1;
    const int error = look_up(line_, false, "getaddrinfo", output_, addresses_);
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
          ibv_qp_init_attr wanted = queue_pair();
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

  // Its answers are not waited for: what is timed is the call.
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

  // Takes each connection through a step. `at_once`: the call does it; else an event says when it is done.
  // False if the call failed for all of them.
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
        status_ = programs::failed(complaint);
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
    Patience patience([this] { return fmt::format("{} connections have no answer yet", under_way_); });
    while (under_way_ > 0) {
      const Event event = next_event(channel_, patience);
      if (!event) {
        programs::failed("failure in rdma_get_cm_event in process_server_events");
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
    tell_failure(output_, fmt::format("{}{}, error: {}", before, rdma_event_str(event.event), event.status),
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

  const Line& line_;
  rdma_event_channel* channel_;
  Output output_;
  AddressInfo addresses_;
  std::vector<Node> nodes_;
  std::vector<Spans> spans_;
  Spans whole_;
  int under_way_ = 0;
  int connected_ = 0;
  int status_ = 0;  // of the last call, which is what the program ends with
  bool told_ = false;
};

void print_usage(const char* program) {
  std::printf("usage: %s\n", program);
  std::printf("\t[-s server_address]\n");
  std::printf("\t[-b bind_address]\n");
  std::printf("\t[-c connections]\n");
  std::printf("\t[-p port_number]\n");
  std::printf("\t[-r retries]\n");
  std::printf("\t[-t timeout_ms]\n");
  std::printf("%s", kJsonUsage);
}

}  // namespace

int cmtime(int argc, char** argv) {
  Line line;
  const Letters letters =
      parse_letters(argc, argv,
                    {text('s', nullptr, line.destination), text('b', nullptr, line.source),
                     decimal('c', line.connections, 0, 1 << 20), text('p', nullptr, line.port),
                     decimal('r', line.retries, 0, 255), decimal('t', line.milliseconds, 0)});
  if (letters.next != Next::kGoOn) {
    print_usage(argv[0]);
    if (letters.next == Next::kWrong) return 1;
    print_help("cmtime");
    return 0;
  }
  line.json = letters.json;
  const Channel channel = first_channel();
  if (!channel) return 1;
  if (line.destination.empty()) return Server(line, channel.get()).run();
  return Client(line, channel.get()).run();
}

}  // namespace verbena::programs
