// SPDX-License-Identifier: Apache-2.0
// rdma_xclient and rdma_xserver: send one message over RC, or over XRC into a shared receive queue.
#include <cctype>
#include <cerrno>
#include <cstdio>

#include <endian.h>
#include <rdma/rdma_verbs.h>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/endpoints/endpoint.h"
#include "commands/rdma_core/connections/letters.h"
#include "commands/rdma_core/connections/programs.h"

namespace verbena::rdma_core {
namespace {

struct ExtendedLine {
  std::string server;
  std::string port = "7471";
  bool shared = false;  // XRC
};

rdma_addrinfo hints_for(const ExtendedLine& line, ibv_qp_type shared_type) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = line.shared ? RDMA_PS_IB : RDMA_PS_TCP;
  hints.ai_qp_type = line.shared ? shared_type : IBV_QPT_RC;
  return hints;
}

int post_message(rdma_cm_id* id, const Message& message, std::optional<uint32_t> shared_queue) {
  ibv_sge place = {reinterpret_cast<uintptr_t>(message.data()), sizeof message, 0};
  ibv_send_wr request = {};
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  if (shared_queue) request.qp_type.xrc.remote_srqn = *shared_queue;
  ibv_send_wr* refused = nullptr;
  errno = ibv_post_send(id->qp, &request, &refused);
  return errno == 0 ? 0 : call_failed("rdma_post_send");
}

// Reads the shared receive queue's number from the server's reply. Only XRC needs it.
int find_shared_queue(const rdma_cm_id& id, std::optional<uint32_t>& number) {
  if (id.event != nullptr) {
    const rdma_conn_param& said = id.event->param.conn;
    number = shared_queue_number({static_cast<const uint8_t*>(said.private_data), said.private_data_len});
  }
  if (number) return 0;
  complain("the server names no shared receive queue", "is it an rdma_xserver -c x?");
  return -1;
}

int call(const ExtendedLine& line, Output& output) {
  AddressInfo addresses;
  const rdma_addrinfo hints = hints_for(line, IBV_QPT_XRC_SEND);
  if (const int error = find_addresses(line.server, line.port, hints, output, addresses); error != 0) {
    return error;
  }
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  if (!line.shared) wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 1;
  wanted.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, addresses.get(), nullptr, &wanted) != 0) return call_failed("rdma_create_ep");
  const Endpoint endpoint(id);
  Message message = {};
  const Region region(rdma_reg_msgs(id, message.data(), message.size()));
  if (!region) return call_failed("rdma_reg_msgs");
  if (rdma_connect(id, nullptr) != 0) return call_failed("rdma_connect");
  describe(id, output);
  std::optional<uint32_t> shared_queue;
  if (line.shared && find_shared_queue(*id, shared_queue) != 0) return -1;
  if (shared_queue) output.object()["remote_srq_number"] = *shared_queue;
  if (const int status = post_message(id, message, shared_queue); status != 0) return status;
  if (const int status = await_completion(id, rdma_get_send_comp, "rdma_get_recv_comp"); status != 0) {
    return status;
  }
  rdma_disconnect(id);
  return 0;
}

// Creates the shared receive queue of an id. Returns its number, which the client needs, in network order.
int make_shared_queue(rdma_cm_id* id, uint32_t& number) {
  ibv_srq_init_attr wanted = {};
  wanted.attr.max_wr = 1;
  wanted.attr.max_sge = 1;
  wanted.srq_context = id;
  if (rdma_create_srq(id, nullptr, &wanted) != 0) return call_failed("rdma_create_srq:");
  uint32_t made = 0;
  errno = ibv_get_srq_num(id->srq, &made);
  if (errno != 0) return call_failed("ibv_get_srq_num");
  number = htobe32(made);
  return 0;
}

int serve(const ExtendedLine& line, Output& output) {
  rdma_addrinfo hints = hints_for(line, IBV_QPT_XRC_RECV);
  hints.ai_flags = RAI_PASSIVE;
  AddressInfo addresses;
  if (const int error = find_addresses("", line.port, hints, output, addresses); error != 0) return error;
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 1;
  if (!line.shared) wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, addresses.get(), nullptr, &wanted) != 0) return call_failed("rdma_create_ep");
  const Endpoint listener(id);
  if (rdma_listen(listener.get(), 0) != 0) return call_failed("rdma_listen");
  if (rdma_get_request(listener.get(), &id) != 0) return call_failed("rdma_get_request");
  const Endpoint endpoint(id);
  uint32_t number = 0;
  if (line.shared && make_shared_queue(id, number) != 0) return -1;
  Message message = {};
  const Region region(rdma_reg_msgs(id, message.data(), message.size()));
  if (!region) return call_failed("rdma_reg_msgs");
  if (rdma_post_recv(id, nullptr, message.data(), message.size(), region.get()) != 0) {
    return call_failed("rdma_post_recv");
  }
  rdma_conn_param answer = {};
  answer.private_data = &number;
  answer.private_data_len = sizeof number;
  if (rdma_accept(id, &answer) != 0) return call_failed("rdma_accept");
  describe(id, output);
  if (line.shared) output.object()["srq_number"] = be32toh(number);
  const int status = await_completion(id, rdma_get_recv_comp, "rdma_get_recv_comp");
  if (status != 0) return status;
  rdma_disconnect(id);
  return 0;
}

Next take_type(const char* word, ExtendedLine& line) {
  const int letter = std::tolower(static_cast<unsigned char>(word[0]));
  line.shared = line.shared || letter == 'x';
  return letter == 'x' || letter == 'r' ? Next::kGoOn : Next::kWrong;
}

int run(int argc, char** argv, const char* name, bool client) {
  ExtendedLine line;
  std::vector<Option> options = {text('p', nullptr, line.port), {'c', nullptr, true, [&](const char* word) {
                                                                   return take_type(word, line);
                                                                 }}};
  if (client) {
    line.server = "127.0.0.1";
    options.push_back(text('s', nullptr, line.server));
  }
  const Letters letters = parse_letters(argc, argv, options);
  if (letters.next != Next::kGoOn) {
    std::printf("usage: %s\n", argv[0]);
    if (client) std::printf("\t[-s server]\n");
    std::printf("\t[-p port_number]\n");
    std::printf("\t[-c communication type]\n");
    std::printf("\t    r - RC: reliable-connected (default)\n");
    std::printf("\t    x - XRC: extended-reliable-connected\n");
    std::printf("%s", kJsonUsage);
    if (letters.next == Next::kWrong) return 1;
    print_help(name);
    return 0;
  }
  Output output(letters.json);
  output.object()["program"] = name;
  output.object()["communication"] = line.shared ? "XRC" : "RC";
  return framed(argv[0], output, [&] { return client ? call(line, output) : serve(line, output); });
}

}  // namespace

int rdma_xclient(int argc, char** argv) {
  return run(argc, argv, "rdma_xclient", true);
}

int rdma_xserver(int argc, char** argv) {
  return run(argc, argv, "rdma_xserver", false);
}

}  // namespace verbena::rdma_core
