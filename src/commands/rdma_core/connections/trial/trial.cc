// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/trial/trial.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include <endian.h>
#include <strings.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/cm.h"

namespace verbena::rdma_core {

namespace {

constexpr size_t kGrh = sizeof(ibv_grh);

// After this number of unsuccessful polls, yield the processor and check the time.
constexpr int kVainPolls = 1000;

}  // namespace

std::optional<uint32_t> number_to_answer(const ibv_wc& completion) {
  const bool named = completion.opcode == IBV_WC_RECV && (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (!named) return std::nullopt;
  return be32toh(completion.imm_data);
}

int Node::prepare() {
  domain_.reset(ibv_alloc_pd(id->verbs));
  if (!domain_) {
    tell_failure(output_, verbena::format("{}: unable to allocate PD", shape_.program),
                 remedy_for_errno(errno));
    return -ENOMEM;
  }
  if (const int status = make_queues(); status != 0) return status;
  if (make_queue_pair() != 0) return failed(verbena::format("{}: unable to create QP", shape_.program));
  queue_pair_.reset(id.get());
  return make_message();
}

int Node::make_queues() {
  const int entries = std::max(shape_.messages, 1);
  const auto make = [&](int size) {
    return CompletionQueue(ibv_create_cq(id->verbs, size, this, nullptr, 0));
  };
  receives_ = make(datagrams() ? 2 * entries : entries);
  if (!datagrams()) sends_ = make(entries);
  if (receives_ && (datagrams() || sends_)) return 0;
  tell_failure(output_, verbena::format("{}: unable to create CQ", shape_.program),
               "fewer messages (-C) need smaller queues");
  return -ENOMEM;
}

int Node::make_queue_pair() {
  ibv_qp_init_attr_ex wanted = {};
  const auto entries = static_cast<uint32_t>(std::max(shape_.messages, 1));
  wanted.cap = {entries, entries, 1, 1, 0};
  wanted.qp_context = this;
  wanted.sq_sig_all = datagrams() ? 0 : 1;
  wanted.qp_type = shape_.type;
  wanted.send_cq = sends();
  wanted.recv_cq = receives_.get();
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = domain_.get();
  if (!shape_.hears_itself) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    wanted.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  }
  return rdma_create_qp_ex(id.get(), &wanted);
}

int Node::make_message() {
  if (shape_.messages == 0) return 0;
  memory_.resize(static_cast<size_t>(shape_.bytes) + (datagrams() ? kGrh : 0));
  region_.reset(ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
  if (region_) return 0;
  tell_failure(output_, "failed to reg MR", remedy_for_errno(errno));
  tell_failure(output_, verbena::format("{}: failed to create messages: {}", shape_.program, -1));
  return -1;
}

int Node::post_receives() {
  if (shape_.messages == 0) return 0;
  const ibv_sge place = {reinterpret_cast<uintptr_t>(memory_.data()), static_cast<uint32_t>(memory_.size()),
                         region_->lkey};
  for (int i = 0; i < shape_.messages; ++i) {
    const int error = post_receive(id->qp, place);
    if (error != 0) {
      tell_failure(output_, verbena::format("failed to post receives: {}", error));
      return error;
    }
  }
  return 0;
}

int Node::post_sends(unsigned flags) {
  if (!connected || shape_.messages == 0) return 0;
  const ibv_sge message = {reinterpret_cast<uintptr_t>(memory_.data()), static_cast<uint32_t>(shape_.bytes),
                           region_->lkey};
  ibv_send_wr request = {};
  request.opcode = datagrams() ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  request.send_flags = flags;
  if (datagrams()) {
    request.imm_data = htobe32(id->qp->qp_num);
    request.wr.ud = {remote_.get(), remote_number, remote_key};
  }
  for (int i = 0; i < shape_.messages; ++i) {
    const int error = post_send(id->qp, message, request);
    if (error != 0) {
      tell_failure(output_, verbena::format("failed to post sends: {}", error));
      return error;
    }
  }
  return 0;
}

int Node::await(ibv_cq* queue, Patience& patience, const char* done,
                const std::function<int(ibv_wc&)>& first) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(patience.milliseconds());
  int vain = 0;
  for (int count = 0; count < shape_.messages;) {
    std::array<ibv_wc, 8> completions;
    const int found = ibv_poll_cq(queue, static_cast<int>(completions.size()), completions.data());
    if (found < 0) {
      tell_failure(output_, verbena::format("{}: failed polling CQ: {}", shape_.program, found));
      return found;
    }
    for (int i = 0; i < found; ++i) {
      if (completions[i].status == IBV_WC_SUCCESS) continue;
      tell_failure(output_, verbena::format("{}: a message was not {}: {}", shape_.program, done,
                                            ibv_wc_status_str(completions[i].status)));
      return -1;
    }
    if (found > 0 && count == 0 && first) {
      if (const int status = first(completions[0]); status != 0) return status;
    }
    count += found;
    if (found > 0 || ++vain % kVainPolls != 0) continue;
    std::this_thread::yield();
    if (patience.milliseconds() >= 0 && Clock::now() > until) patience.say();
  }
  return 0;
}

int Node::reach(ibv_ah_attr attributes) {
  remote_.reset(ibv_create_ah(domain_.get(), &attributes));
  if (remote_) return 0;
  tell_failure(output_, verbena::format("{}: failure creating address handle", shape_.program),
               remedy_for_errno(errno));
  return -1;
}

int Node::reach_sender(ibv_wc& completion) {
  const auto number = number_to_answer(completion);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr ignored = {};
  if (number) {
    remote_.reset(ibv_create_ah_from_wc(domain_.get(), &completion,
                                        reinterpret_cast<ibv_grh*>(memory_.data()), id->port_num));
  }
  if (!remote_ || ibv_query_qp(id->qp, &attributes, IBV_QP_QKEY, &ignored) != 0) {
    tell_failure(output_, verbena::format("{}: failed to create reply AH", shape_.program),
                 number ? "" : "the message does not say which queue pair to answer");
    return -1;
  }
  remote_number = *number;
  remote_key = attributes.qkey;
  return 0;
}

nlohmann::ordered_json Node::description() const {
  if (!id) return nullptr;
  nlohmann::ordered_json object = described(id.get(), id->qp);
  object["connected"] = connected;
  return object;
}

namespace {

constexpr int kMaxConnections = 1 << 20;
constexpr int kMaxBytes = 1 << 30;

}  // namespace

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
    : name_(name), plan_(std::move(plan)), output_(plan_.json), connects_left_(plan_.connections) {
  output_.object()["program"] = name;
  if (plan_.bytes == 0) plan_.messages = 0;
  shape_ = {name_, type, plan_.messages, plan_.bytes, plan_.hears_itself};
}

int Trial::run() {
  channel_ = first_channel();
  if (!channel_ || make_nodes() != 0) return 1;
  const int status = perform();
  output_.text("test complete\n");
  if (status == 0) report();
  nodes_.clear();
  refused_.clear();
  output_.text("return status %d\n", status);
  if (status == 0) output_.finish();
  return status;
}

int Trial::perform() {
  const bool calls = needs_ids();
  output_.object()["role"] = calls ? "client" : "server";
  output_.text("%s: starting %s\n", name_, calls ? "client" : "server");
  const int status = calls ? call() : serve();
  listener_.reset();
  return status;
}

int Trial::make_nodes() {
  for (int i = 0; i < plan_.connections; ++i) {
    auto node = std::make_unique<Node>(shape_, output_);
    if (needs_ids()) {
      rdma_cm_id* id = nullptr;
      const auto space = static_cast<rdma_port_space>(plan_.hints.ai_port_space);
      if (rdma_create_id(channel_.get(), &id, node.get(), space) != 0) {
        return complain_of_call("unable to create an id");
      }
      node->id.reset(id);
    }
    nodes_.push_back(std::move(node));
  }
  return 0;
}

int Trial::complain_of_call(const std::string& what) const {
  return failed(verbena::format("{}: {}", name_, what));
}

int Trial::for_each_node(const std::function<int(Node&)>& call) {
  for (const auto& node : nodes_) {
    if (const int status = call(*node); status != 0) return status;
  }
  return 0;
}

int Trial::find_both_ends(const char* what) {
  const int error = find_addresses(plan_.source, plan_.destination, plan_.port, plan_.hints, addresses_);
  if (error != 0) tell_lookup_failure(output_, verbena::format("{}: {} error", name_, what), error);
  return error;
}

int Trial::listen() {
  rdma_cm_id* id = nullptr;
  const auto space = static_cast<rdma_port_space>(plan_.hints.ai_port_space);
  if (rdma_create_id(channel_.get(), &id, nullptr, space) != 0) {
    return complain_of_call("listen request failed");
  }
  listener_.reset(id);
  if (const int status = find_both_ends("getrdmaaddr"); status != 0) return status;
  if (rdma_bind_addr(id, addresses_->ai_src_addr) != 0) return complain_of_call("bind address failed");
  if (rdma_listen(id, 0) != 0) return complain_of_call("failure trying to listen");
  return 0;
}

int Trial::begin_calls() {
  if (const int status = find_both_ends("getaddrinfo"); status != 0) return status;
  output_.text("%s: connecting\n", name_);
  return for_each_node([this](Node& node) {
    if (rdma_resolve_addr(node.id.get(), addresses_->ai_src_addr, addresses_->ai_dst_addr,
                          kResolveMilliseconds) != 0) {
      return complain_of_call("failure getting addr");
    }
    return 0;
  });
}

void Trial::connected(Node& node) {
  node.connected = true;
  --connects_left_;
}

int Trial::reached(Node& node, const rdma_ud_param& remote) {
  if (const int status = node.reach(remote.ah_attr); status != 0) return status;
  node.remote_number = remote.qp_num;
  node.remote_key = remote.qkey;
  connected(node);
  return 0;
}

int Trial::await_sends(const char* words) {
  Patience patience([words] { return words; });
  return for_each_node([&](Node& node) { return node.connected ? node.await_sends(patience) : 0; });
}

int Trial::await_receives(const std::function<std::string()>& words,
                          const std::function<int(Node&, ibv_wc&)>& first) {
  Patience patience(words);
  return for_each_node([&](Node& node) {
    if (!node.connected) return 0;
    return node.await_receives(patience, [&](ibv_wc& one) { return first ? first(node, one) : 0; });
  });
}

int Trial::serve_until_connected() {
  const Stopwatch watch;
  const int status = serve_while(connects_left_, [this] {
    return verbena::format("{} of {} connections are not there yet", connects_left_, plan_.connections);
  });
  connecting_ = watch.seconds();
  return status;
}

int Trial::serve_while(const int& left, const std::function<std::string()>& words) {
  Patience patience(words);
  while (left > 0) {
    const Event event = next_event(channel_.get(), patience);
    if (!event) return complain_of_call("failure in rdma_get_cm_event");
    if (const int status = handle(*event); status != 0) return status;
  }
  return 0;
}

int Trial::handle(rdma_cm_event& event) {
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
      disconnected(event.id);
      return 0;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      tell_failure(
          output_,
          verbena::format("{}: event: {}, error: {}", name_, rdma_event_str(event.event), event.status),
          remedy_for(event.event));
      // An event of failure ends the program, even with status 0.
      return event.status != 0 ? event.status : -1;
    default:
      return 0;  // a removed device: its users notice
  }
}

void Trial::set_ack_timeout(rdma_cm_id* id) {
  if (plan_.ack_timeout &&
      rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &*plan_.ack_timeout, 1) != 0) {
    complain_of_call("set ack timeout option failed");
  }
}

int Trial::address_resolved(Node& node) {
  if (plan_.tos && rdma_set_option(node.id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &*plan_.tos, 1) != 0) {
    complain_of_call("set TOS option failed");
  }
  set_ack_timeout(node.id.get());
  if (rdma_resolve_route(node.id.get(), kResolveMilliseconds) != 0) {
    return complain_of_call("resolve route failed");
  }
  return 0;
}

int Trial::route_resolved(Node& node) {
  if (const int status = fits_port(node); status != 0) return status;
  if (const int status = node.prepare(); status != 0) return status;
  if (const int status = node.post_receives(); status != 0) return status;
  rdma_conn_param wanted = connection();
  wanted.private_data = addresses_->ai_connect;
  wanted.private_data_len = static_cast<uint8_t>(addresses_->ai_connect_len);
  if (rdma_connect(node.id.get(), &wanted) != 0) return complain_of_call("failure connecting");
  return 0;
}

int Trial::requested(rdma_cm_id* id) {
  const auto refuse = [&](int status) {
    tell_failure(output_, verbena::format("{}: failing connection request", name_));
    rdma_reject(id, nullptr, 0);
    return status;
  };
  if (next_node_ == nodes_.size()) {
    refused_.emplace_back(id);  // cannot be destroyed before its event is acknowledged
    return refuse(-ENOMEM);
  }
  Node& node = *nodes_[next_node_++];
  node.id.reset(id);
  id->context = &node;
  int status = fits_port(node);
  if (status == 0) status = node.prepare();
  if (status == 0) set_ack_timeout(id);
  if (status == 0) status = node.post_receives();
  if (status == 0 && accept(node) != 0) status = complain_of_call("failure accepting");
  return status == 0 ? 0 : refuse(status);
}

int Trial::fits_port(const Node& node) const {
  if (node.id->verbs == nullptr) {  // a wildcard address, such as 127.0.0.1, belongs to no device
    tell_failure(output_, verbena::format("{}: no device has that address", name_), remedy_for_errno(ENODEV));
    return -ENODEV;
  }
  if (shape_.type != IBV_QPT_UD) return 0;
  ibv_port_attr port = {};
  if (const int error = ibv_query_port(node.id->verbs, node.id->port_num, &port); error != 0) return error;
  const int mtu = 1 << (port.active_mtu + 7);
  if (plan_.messages == 0 || plan_.bytes <= mtu) return 0;
  tell_failure(output_,
               verbena::format("{}: message_size {} is larger than active mtu {}", name_, plan_.bytes, mtu));
  return -EINVAL;
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
