// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/trial/trial.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <endian.h>
#include <strings.h>

#include "base/format.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kGrh = sizeof(ibv_grh);

// After this number of unsuccessful polls, yield the processor and check the time.
constexpr int kVainPolls = 1000;

constexpr int kMaxConnections = 1 << 20;
constexpr int kMaxBytes = 1 << 30;

}  // namespace

std::optional<uint32_t> number_to_answer(const ibv_wc& completion) {
  const bool named = completion.opcode == IBV_WC_RECV && (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (!named) return std::nullopt;
  return be32toh(completion.imm_data);
}

void Node::prepare() {
  domain_.reset(ibv_alloc_pd(id->verbs));
  if (!domain_) {
    const char* remedy = remedy_for_errno(errno);
    fail(output_, -ENOMEM, verbena::format("{}: unable to allocate PD", plan_.program), remedy);
  }
  make_queues();
  make_queue_pair();
  make_message();
}

void Node::make_queues() {
  const int entries = std::max(plan_.messages, 1);
  const auto make = [&](int size) {
    return CompletionQueue(ibv_create_cq(id->verbs, size, this, nullptr, 0));
  };
  receives_ = make(datagrams() ? 2 * entries : entries);
  if (!datagrams()) sends_ = make(entries);
  if (receives_ && (datagrams() || sends_)) return;
  fail(output_, -ENOMEM, verbena::format("{}: unable to create CQ", plan_.program),
       "fewer messages (-C) need smaller queues");
}

void Node::make_queue_pair() {
  ibv_qp_init_attr_ex wanted = {};
  const auto entries = static_cast<uint32_t>(std::max(plan_.messages, 1));
  wanted.cap = {entries, entries, 1, 1, 0};
  wanted.qp_context = this;
  wanted.sq_sig_all = datagrams() ? 0 : 1;
  wanted.qp_type = plan_.type;
  wanted.send_cq = sends();
  wanted.recv_cq = receives_.get();
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = domain_.get();
  if (!plan_.hears_itself) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    wanted.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  }
  if (rdma_create_qp_ex(id.get(), &wanted) != 0) {
    fail_of_call(verbena::format("{}: unable to create QP", plan_.program));
  }
  queue_pair_.reset(id.get());
}

void Node::make_message() {
  if (plan_.messages == 0) return;
  memory_.resize(static_cast<size_t>(plan_.bytes) + (datagrams() ? kGrh : 0));
  region_.reset(ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
  if (region_) return;
  tell_failure(output_, "failed to reg MR", remedy_for_errno(errno));
  fail(output_, -1, verbena::format("{}: failed to create messages: {}", plan_.program, -1));
}

void Node::post_receives() {
  if (plan_.messages == 0) return;
  const ibv_sge place = {reinterpret_cast<uintptr_t>(memory_.data()), static_cast<uint32_t>(memory_.size()),
                         region_->lkey};
  for (int i = 0; i < plan_.messages; ++i) {
    const int error = post_receive(id->qp, place);
    if (error != 0) fail(output_, error, verbena::format("failed to post receives: {}", error));
  }
}

void Node::post_sends(unsigned flags) {
  if (!connected || plan_.messages == 0) return;
  const ibv_sge message = {reinterpret_cast<uintptr_t>(memory_.data()), static_cast<uint32_t>(plan_.bytes),
                           region_->lkey};
  ibv_send_wr request = {};
  request.opcode = datagrams() ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  request.send_flags = flags;
  if (datagrams()) {
    request.imm_data = htobe32(id->qp->qp_num);
    request.wr.ud = {remote_.get(), remote_number, remote_key};
  }
  for (int i = 0; i < plan_.messages; ++i) {
    const int error = post_send(id->qp, message, request);
    if (error != 0) fail(output_, error, verbena::format("failed to post sends: {}", error));
  }
}

void Node::await(ibv_cq* queue, Patience& patience, const char* done,
                 const std::function<void(ibv_wc&)>& first) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(patience.milliseconds());
  int vain = 0;
  for (int count = 0; count < plan_.messages;) {
    std::array<ibv_wc, 8> completions;
    const int found = ibv_poll_cq(queue, static_cast<int>(completions.size()), completions.data());
    if (found < 0) fail(output_, found, verbena::format("{}: failed polling CQ: {}", plan_.program, found));
    for (int i = 0; i < found; ++i) {
      if (completions[i].status == IBV_WC_SUCCESS) continue;
      fail(output_, -1,
           verbena::format("{}: a message was not {}: {}", plan_.program, done,
                           ibv_wc_status_str(completions[i].status)));
    }
    if (found > 0 && count == 0 && first) first(completions[0]);
    count += found;
    if (found > 0 || ++vain % kVainPolls != 0) continue;
    std::this_thread::yield();
    if (patience.milliseconds() >= 0 && Clock::now() > until) patience.say();
  }
}

void Node::reach(ibv_ah_attr attributes) {
  remote_.reset(ibv_create_ah(domain_.get(), &attributes));
  if (remote_) return;
  const char* remedy = remedy_for_errno(errno);
  fail(output_, -1, verbena::format("{}: failure creating address handle", plan_.program), remedy);
}

void Node::reach_sender(ibv_wc& completion) {
  const auto number = number_to_answer(completion);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr ignored = {};
  if (number) {
    remote_.reset(ibv_create_ah_from_wc(domain_.get(), &completion,
                                        reinterpret_cast<ibv_grh*>(memory_.data()), id->port_num));
  }
  if (!remote_ || ibv_query_qp(id->qp, &attributes, IBV_QP_QKEY, &ignored) != 0) {
    fail(output_, -1, verbena::format("{}: failed to create reply AH", plan_.program),
         number ? "" : "the message does not say which queue pair to answer");
  }
  remote_number = *number;
  remote_key = attributes.qkey;
}

nlohmann::ordered_json Node::description() const {
  if (!id) return nullptr;
  nlohmann::ordered_json object = described(id.get(), id->qp);
  object["connected"] = connected;
  return object;
}

std::vector<Option> common_options(Plan& plan) {
  return {text('b', nullptr, plan.source), decimal('c', plan.connections, 0, kMaxConnections),
          decimal('C', plan.messages, 0, kMaxBytes), decimal('S', plan.bytes, 0, kMaxBytes)};
}

std::vector<Option> two_way_options(Plan& plan, const PortSpace& usual, const PortSpace& other) {
  const auto take_space = [&plan, usual, other](const char* word) {
    const auto is = [word](std::string_view name) {
      return strncasecmp(name.data(), word, name.size()) == 0;
    };
    if (is(other.name)) {
      plan.hints.ai_port_space = other.space;
    } else if (!is(usual.name)) {
      complain("Warning: unknown port space format",
               verbena::format("{} and {} are known", usual.name, other.name));
    }
  };
  plan.hints.ai_port_space = usual.space;
  std::vector<Option> options = common_options(plan);
  options.insert(options.end(),
                 {text('s', nullptr, plan.destination),
                  taken('f', nullptr, [&](const char* word) { take_format(word, plan.hints); }),
                  taken('P', nullptr, take_space), octet('t', [&](uint8_t value) { plan.tos = value; })});
  return options;
}

Option port_space_number(Plan& plan) {
  return number_to('p', nullptr, 0, 0xffff,
                   [&plan](long long value) { plan.hints.ai_port_space = static_cast<int>(value); });
}

Trial::Trial(const char* name, ibv_qp_type type, Plan plan)
    : plan_(std::move(plan)), name_(name), output_(plan_.json), connects_left_(plan_.connections) {
  output_.object()["program"] = name;
  plan_.program = name;
  plan_.type = type;
  if (plan_.bytes == 0) plan_.messages = 0;
}

int Trial::run() {
  channel_ = first_channel();
  if (!channel_) return 1;
  make_nodes();
  const int status = status_of([this] { perform(); });
  listener_.reset();
  output_.text("test complete\n");
  if (status == 0) report();
  nodes_.clear();
  refused_.clear();
  output_.text("return status %d\n", status);
  if (status == 0) output_.finish();
  return status;
}

void Trial::perform() {
  const bool calls = needs_ids();
  output_.object()["role"] = calls ? "client" : "server";
  output_.text("%s: starting %s\n", name_, calls ? "client" : "server");
  calls ? call() : serve();
}

void Trial::make_nodes() {
  for (int i = 0; i < plan_.connections; ++i) {
    auto node = std::make_unique<Node>(plan_, output_);
    if (needs_ids()) node->id.reset(make_id(node.get(), 1, "unable to create an id"));
    nodes_.push_back(std::move(node));
  }
}

rdma_cm_id* Trial::make_id(void* context, int status, const char* complaint) {
  rdma_cm_id* id = nullptr;
  const auto space = static_cast<rdma_port_space>(plan_.hints.ai_port_space);
  if (rdma_create_id(channel_.get(), &id, context, space) == 0) return id;
  complain_of_call(complaint);
  throw Failure{status};
}

int Trial::complain_of_call(const std::string& what) const {
  return failed(verbena::format("{}: {}", name_, what));
}

void Trial::find_both_ends(const char* what) {
  addresses_ = find_addresses({plan_.source, plan_.destination, plan_.port}, plan_.hints,
                              verbena::format("{}: {} error", name_, what), output_);
}

void Trial::listen() {
  rdma_cm_id* id = make_id(nullptr, -1, "listen request failed");
  listener_.reset(id);
  find_both_ends("getrdmaaddr");
  if (rdma_bind_addr(id, addresses_->ai_src_addr) != 0) fail_call("bind address failed");
  if (rdma_listen(id, 0) != 0) fail_call("failure trying to listen");
}

void Trial::begin_calls() {
  find_both_ends("getaddrinfo");
  output_.text("%s: connecting\n", name_);
  for (const auto& node : nodes_) {
    if (rdma_resolve_addr(node->id.get(), addresses_->ai_src_addr, addresses_->ai_dst_addr,
                          kResolveMilliseconds) != 0) {
      fail_call("failure getting addr");
    }
  }
}

void Trial::connected(Node& node) {
  node.connected = true;
  --connects_left_;
}

void Trial::reached(Node& node, const rdma_ud_param& remote) {
  node.reach(remote.ah_attr);
  node.remote_number = remote.qp_num;
  node.remote_key = remote.qkey;
  connected(node);
}

void Trial::send(unsigned flags) {
  for (const auto& node : nodes_) node->post_sends(flags);
}

void Trial::await_sends(const char* words) {
  Patience patience([words] { return words; });
  for (const auto& node : nodes_) {
    if (node->connected) node->await_sends(patience);
  }
}

void Trial::await_receives(const std::function<std::string()>& words,
                           const std::function<void(Node&, ibv_wc&)>& first) {
  Patience patience(words);
  for (const auto& node : nodes_) {
    if (!node->connected) continue;
    node->await_receives(patience, [&](ibv_wc& one) {
      if (first) first(*node, one);
    });
  }
}

void Trial::serve_until_connected() {
  const Stopwatch watch;
  const int status = status_of([this] {
    serve_while(connects_left_, [this] {
      return verbena::format("{} of {} connections are not there yet", connects_left_, plan_.connections);
    });
  });
  connecting_ = watch.seconds();
  if (status != 0) throw Failure{status};
}

void Trial::serve_while(const int& left, const std::function<std::string()>& words) {
  Patience patience(words);
  while (left > 0) {
    const Event event = next_event(channel_.get(), patience);
    if (!event) fail_call("failure in rdma_get_cm_event");
    handle(*event);
  }
}

void Trial::handle(rdma_cm_event& event) {
  auto* node = static_cast<Node*>(event.id->context);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return address_resolved(*node);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return route_resolved(*node);
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return requested(event.id);
    case RDMA_CM_EVENT_ESTABLISHED:
      return established(*node, event.param.ud);
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      return joined(*node, event.param.ud);
    case RDMA_CM_EVENT_DISCONNECTED:
      return disconnected(event.id);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      // An event of failure ends the program, even with status 0.
      fail(output_, event.status != 0 ? event.status : -1,
           verbena::format("{}: event: {}, error: {}", name_, rdma_event_str(event.event), event.status),
           remedy_for(event.event));
    default:
      return;  // a removed device: its users notice
  }
}

void Trial::set_ack_timeout(rdma_cm_id* id) {
  if (plan_.ack_timeout &&
      rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &*plan_.ack_timeout, 1) != 0) {
    complain_of_call("set ack timeout option failed");
  }
}

void Trial::address_resolved(Node& node) {
  if (plan_.tos && rdma_set_option(node.id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &*plan_.tos, 1) != 0) {
    complain_of_call("set TOS option failed");
  }
  set_ack_timeout(node.id.get());
  if (rdma_resolve_route(node.id.get(), kResolveMilliseconds) != 0) fail_call("resolve route failed");
}

void Trial::route_resolved(Node& node) {
  require_port_fits(node);
  node.prepare();
  node.post_receives();
  rdma_conn_param wanted = connection();
  wanted.private_data = addresses_->ai_connect;
  wanted.private_data_len = static_cast<uint8_t>(addresses_->ai_connect_len);
  if (rdma_connect(node.id.get(), &wanted) != 0) fail_call("failure connecting");
}

void Trial::requested(rdma_cm_id* id) {
  const int status = status_of([&] {
    if (next_node_ == nodes_.size()) {
      refused_.emplace_back(id);  // cannot be destroyed before its event is acknowledged
      throw Failure{-ENOMEM};
    }
    Node& node = *nodes_[next_node_++];
    node.id.reset(id);
    id->context = &node;
    require_port_fits(node);
    node.prepare();
    set_ack_timeout(id);
    node.post_receives();
    if (accept(node) != 0) fail_call("failure accepting");
  });
  if (status == 0) return;
  tell_failure(output_, verbena::format("{}: failing connection request", name_));
  rdma_reject(id, nullptr, 0);
  throw Failure{status};
}

void Trial::require_port_fits(const Node& node) const {
  if (node.id->verbs == nullptr) {  // a wildcard address, such as 127.0.0.1, belongs to no device
    fail(output_, -ENODEV, verbena::format("{}: no device has that address", name_),
         remedy_for_errno(ENODEV));
  }
  if (plan_.type != IBV_QPT_UD) return;
  ibv_port_attr port = {};
  const int error = ibv_query_port(node.id->verbs, node.id->port_num, &port);
  if (error != 0) throw Failure{error};
  const int mtu = 1 << (port.active_mtu + 7);
  if (plan_.messages == 0 || plan_.bytes <= mtu) return;
  fail(output_, -EINVAL,
       verbena::format("{}: message_size {} is larger than active mtu {}", name_, plan_.bytes, mtu));
}

void Trial::report() {
  auto& object = output_.object();
  object["connections"] = plan_.connections;
  object["messages"] = plan_.messages;
  object["message_bytes"] = plan_.bytes;
  object["connect_seconds"] = connecting_;
  object["transfer_seconds"] = transferring_;
  object["nodes"] = nlohmann::ordered_json::array();
  for (const auto& node : nodes_) object["nodes"].push_back(node->description());
}

}  // namespace verbena::rdma_core
