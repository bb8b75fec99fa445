// SPDX-License-Identifier: Apache-2.0
// rdma_client and rdma_server send one message in each direction. rdma_xclient and rdma_xserver send one
// message over RC, or over XRC into a shared receive queue. All use librdmacm's blocking calls and one
// endpoint.
#include "commands/rdma_core/connections/endpoints/endpoint.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <vector>

#include <endian.h>
#include <rdma/rdma_verbs.h>

#include "base/format.h"
#include "commands/rdma_core/connections/cm.h"
#include "commands/rdma_core/connections/command_line.h"

namespace verbena::rdma_core {
namespace {

using Message = std::array<uint8_t, 16>;

// The options of the four programs.
struct EndpointLine {
  std::string server;
  std::string port = "7471";
  bool shared = false;  // XRC
};

struct EndpointProgram {
  const char* name;
  const char* server;  // default of -s; null if the program has no such option
  bool extended;       // has -c, the communication type, and names itself as it was called
  void (*perform)(const EndpointLine& line, Output& output);
};

Next take_type(const char* word, EndpointLine& line) {
  const int letter = std::tolower(static_cast<unsigned char>(word[0]));
  line.shared = line.shared || letter == 'x';
  return letter == 'x' || letter == 'r' ? Next::kGoOn : Next::kWrong;
}

// Parses the command line, and calls perform() between "NAME: start" and "NAME: end STATUS". Prints the JSON
// object if the status is 0. Returns the status.
int run(const EndpointProgram& program, int argc, char** argv) {
  EndpointLine line;
  std::vector<Option> options = {text('p', nullptr, line.port)};
  if (program.server != nullptr) {
    line.server = program.server;
    options.push_back(text('s', nullptr, line.server));
  }
  if (program.extended) {
    options.push_back({'c', nullptr, true, [&](const char* word) { return take_type(word, line); }});
  }
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) return print_usage(program.name, argv[0], letters.next);
  Output output(letters.json);
  output.object()["program"] = program.name;
  if (program.extended) output.object()["communication"] = line.shared ? "XRC" : "RC";
  const char* name = program.extended ? argv[0] : program.name;
  output.text("%s: start\n", name);
  const int status = status_of([&] { program.perform(line, output); });
  output.text("%s: end %d\n", name, status);
  if (status == 0) output.finish();
  return status;
}

// Creates an endpoint for the server's address. With RAI_PASSIVE in `hints`, the endpoint is a listener.
// Otherwise it has a queue pair, and `wanted` has the queue pair's attributes afterwards.
Endpoint make_endpoint(const EndpointLine& line, const rdma_addrinfo& hints, ibv_qp_init_attr& wanted,
                       const Output& output) {
  const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
  const AddressInfo addresses = find_addresses(
      {passive ? line.server : "", passive ? "" : line.server, line.port}, hints, "rdma_getaddrinfo", output);
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, addresses.get(), nullptr, &wanted) != 0) fail_of_call("rdma_create_ep");
  return Endpoint(id);
}

// Listens with an endpoint of make_endpoint(), and waits for a client.
Endpoint await_client(rdma_cm_id* listener) {
  rdma_cm_id* id = nullptr;
  if (rdma_listen(listener, 0) != 0) fail_of_call("rdma_listen");
  if (rdma_get_request(listener, &id) != 0) fail_of_call("rdma_get_request");
  return Endpoint(id);
}

// Waits for a completion with `call`, which is rdma_get_send_comp() or rdma_get_recv_comp(). `name` is the
// function's name in the message.
void await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name) {
  ibv_wc completion = {};
  int found = 0;
  while ((found = call(id, &completion)) == 0) {
  }
  if (found < 0) fail_of_call(name);
  if (completion.status == IBV_WC_SUCCESS) return;
  complain(verbena::format("{}: {}", name, ibv_wc_status_str(completion.status)),
           "the other end is gone, or did not take the message");
  throw Failure{-1};
}

// Adds the endpoint's device, addresses, queue pair number and message size to the JSON object.
void describe(rdma_cm_id* id, Output& output) {
  output.object().update(described(id, id->qp));
  output.object()["message_bytes"] = sizeof(Message);
}

// Registers a message. `name` is the call in the complaint.
Region register_message(rdma_cm_id* id, Message& message, const char* name) {
  Region region(rdma_reg_msgs(id, message.data(), message.size()));
  if (!region) fail_of_call(name);
  return region;
}

void post_receive(rdma_cm_id* id, Message& message, const Region& region) {
  if (rdma_post_recv(id, nullptr, message.data(), message.size(), region.get()) != 0) {
    fail_of_call("rdma_post_recv");
  }
}

// The buffers and requests of rdma_client and rdma_server.
class Messages {
 public:
  // Registers the buffers and posts a receive. Make it before the connection is established. `id` must
  // outlive this object.
  Messages(const char* name, rdma_cm_id* id, uint32_t inline_bytes, const Output& output) : id_(id) {
    if (inline_bytes >= sizeof(Message)) {
      send_flags_ = IBV_SEND_INLINE;
    } else {
      output.text("%s: device doesn't support IBV_SEND_INLINE, using sge sends\n", name);
    }
    received_region_ = register_message(id, received_, "rdma_reg_msgs for recv_msg");
    if ((send_flags_ & IBV_SEND_INLINE) == 0) {
      sent_region_ = register_message(id, sent_, "rdma_reg_msgs for send_msg");
    }
    post_receive(id, received_, received_region_);
  }

  static ibv_qp_init_attr queue_pair() {
    ibv_qp_init_attr wanted = {};
    wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 1;
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = sizeof(Message);
    wanted.sq_sig_all = 1;
    return wanted;
  }

  void send() {
    if (rdma_post_send(id_, nullptr, sent_.data(), sent_.size(), sent_region_.get(), send_flags_) != 0) {
      fail_of_call("rdma_post_send");
    }
    await_completion(id_, rdma_get_send_comp, "rdma_get_send_comp");
  }

  void receive() { await_completion(id_, rdma_get_recv_comp, "rdma_get_recv_comp"); }

 private:
  rdma_cm_id* id_;
  int send_flags_ = 0;
  Message sent_ = {};
  Message received_ = {};
  Region sent_region_;
  Region received_region_;
};

// Ends a connection, also if the exchange of messages fails.
using Connection = Handle<rdma_cm_id, rdma_disconnect>;

void call(const EndpointLine& line, Output& output) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  ibv_qp_init_attr wanted = Messages::queue_pair();
  const Endpoint endpoint = make_endpoint(line, hints, wanted, output);
  rdma_cm_id* id = endpoint.get();
  Messages messages("rdma_client", id, wanted.cap.max_inline_data, output);
  if (rdma_connect(id, nullptr) != 0) fail_of_call("rdma_connect");
  const Connection connection(id);
  describe(id, output);
  messages.send();
  messages.receive();
}

void serve(const EndpointLine& line, Output& output) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  ibv_qp_init_attr wanted = Messages::queue_pair();
  const Endpoint listener = make_endpoint(line, hints, wanted, output);
  const Endpoint endpoint = await_client(listener.get());
  rdma_cm_id* id = endpoint.get();
  ibv_qp_attr ignored = {};
  ibv_qp_init_attr made = {};
  errno = ibv_query_qp(id->qp, &ignored, IBV_QP_CAP, &made);
  if (errno != 0) fail_of_call("ibv_query_qp");
  Messages messages("rdma_server", id, made.cap.max_inline_data, output);
  if (rdma_accept(id, nullptr) != 0) fail_of_call("rdma_accept");
  const Connection connection(id);
  describe(id, output);
  messages.receive();
  messages.send();
}

rdma_addrinfo hints_for(const EndpointLine& line, ibv_qp_type shared_type) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = line.shared ? RDMA_PS_IB : RDMA_PS_TCP;
  hints.ai_qp_type = line.shared ? shared_type : IBV_QPT_RC;
  return hints;
}

// Reads the shared receive queue's number from the server's reply. Only XRC needs it.
uint32_t find_shared_queue(const rdma_cm_id& id) {
  std::optional<uint32_t> number;
  if (id.event != nullptr) {
    const rdma_conn_param& said = id.event->param.conn;
    number = shared_queue_number({static_cast<const uint8_t*>(said.private_data), said.private_data_len});
  }
  if (number) return *number;
  complain("the server names no shared receive queue", "is it an rdma_xserver -c x?");
  throw Failure{-1};
}

void call_shared(const EndpointLine& line, Output& output) {
  const rdma_addrinfo hints = hints_for(line, IBV_QPT_XRC_SEND);
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  if (!line.shared) wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 1;
  wanted.sq_sig_all = 1;
  const Endpoint endpoint = make_endpoint(line, hints, wanted, output);
  rdma_cm_id* id = endpoint.get();
  Message message = {};
  const Region region = register_message(id, message, "rdma_reg_msgs");
  if (rdma_connect(id, nullptr) != 0) fail_of_call("rdma_connect");
  describe(id, output);
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  if (line.shared) {
    request.qp_type.xrc.remote_srqn = find_shared_queue(*id);
    output.object()["remote_srq_number"] = request.qp_type.xrc.remote_srqn;
  }
  errno = post_send(id->qp, {reinterpret_cast<uintptr_t>(message.data()), sizeof message, 0}, request);
  if (errno != 0) fail_of_call("rdma_post_send");
  await_completion(id, rdma_get_send_comp, "rdma_get_recv_comp");
  rdma_disconnect(id);
}

// Creates the shared receive queue of an id. Returns its number, which the client needs, in network order.
uint32_t make_shared_queue(rdma_cm_id* id) {
  ibv_srq_init_attr wanted = {};
  wanted.attr.max_wr = 1;
  wanted.attr.max_sge = 1;
  wanted.srq_context = id;
  if (rdma_create_srq(id, nullptr, &wanted) != 0) fail_of_call("rdma_create_srq:");
  uint32_t made = 0;
  errno = ibv_get_srq_num(id->srq, &made);
  if (errno != 0) fail_of_call("ibv_get_srq_num");
  return htobe32(made);
}

void serve_shared(const EndpointLine& line, Output& output) {
  rdma_addrinfo hints = hints_for(line, IBV_QPT_XRC_RECV);
  hints.ai_flags = RAI_PASSIVE;
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 1;
  if (!line.shared) wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  const Endpoint listener = make_endpoint(line, hints, wanted, output);
  const Endpoint endpoint = await_client(listener.get());
  rdma_cm_id* id = endpoint.get();
  const uint32_t number = line.shared ? make_shared_queue(id) : 0;
  Message message = {};
  const Region region = register_message(id, message, "rdma_reg_msgs");
  post_receive(id, message, region);
  rdma_conn_param answer = {};
  answer.private_data = &number;
  answer.private_data_len = sizeof number;
  if (rdma_accept(id, &answer) != 0) fail_of_call("rdma_accept");
  describe(id, output);
  if (line.shared) output.object()["srq_number"] = be32toh(number);
  await_completion(id, rdma_get_recv_comp, "rdma_get_recv_comp");
  rdma_disconnect(id);
}

}  // namespace

std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data) {
  uint32_t number = 0;
  if (private_data.size() < sizeof number) return std::nullopt;
  std::memcpy(&number, private_data.data(), sizeof number);
  return be32toh(number);
}

int rdma_client(int argc, char** argv) {
  return run({"rdma_client", "127.0.0.1", false, call}, argc, argv);
}

int rdma_server(int argc, char** argv) {
  return run({"rdma_server", "0.0.0.0", false, serve}, argc, argv);
}

int rdma_xclient(int argc, char** argv) {
  return run({"rdma_xclient", "127.0.0.1", true, call_shared}, argc, argv);
}

int rdma_xserver(int argc, char** argv) {
  return run({"rdma_xserver", nullptr, true, serve_shared}, argc, argv);
}

}  // namespace verbena::rdma_core
