// SPDX-License-Identifier: Apache-2.0
// rdma_xclient and rdma_xserver: send one message over RC, or over XRC into a shared receive queue.
#include <cerrno>

#include <endian.h>
#include <rdma/rdma_verbs.h>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/cm.h"
#include "commands/rdma_core/connections/endpoints/endpoint.h"

namespace verbena::rdma_core {
namespace {

rdma_addrinfo hints_for(const EndpointLine& line, ibv_qp_type shared_type) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = line.shared ? RDMA_PS_IB : RDMA_PS_TCP;
  hints.ai_qp_type = line.shared ? shared_type : IBV_QPT_RC;
  return hints;
}

int post_message(rdma_cm_id* id, const Message& message, std::optional<uint32_t> shared_queue) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  if (shared_queue) request.qp_type.xrc.remote_srqn = *shared_queue;
  errno = post_send(id->qp, {reinterpret_cast<uintptr_t>(message.data()), sizeof message, 0}, request);
  return errno == 0 ? 0 : failed("rdma_post_send");
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

int call(const EndpointLine& line, Output& output) {
  const rdma_addrinfo hints = hints_for(line, IBV_QPT_XRC_SEND);
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  if (!line.shared) wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 1;
  wanted.sq_sig_all = 1;
  Endpoint endpoint;
  if (const int error = make_endpoint(line, hints, wanted, output, endpoint); error != 0) return error;
  rdma_cm_id* id = endpoint.get();
  Message message = {};
  const Region region(rdma_reg_msgs(id, message.data(), message.size()));
  if (!region) return failed("rdma_reg_msgs");
  if (rdma_connect(id, nullptr) != 0) return failed("rdma_connect");
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
  if (rdma_create_srq(id, nullptr, &wanted) != 0) return failed("rdma_create_srq:");
  uint32_t made = 0;
  errno = ibv_get_srq_num(id->srq, &made);
  if (errno != 0) return failed("ibv_get_srq_num");
  number = htobe32(made);
  return 0;
}

int serve(const EndpointLine& line, Output& output) {
  rdma_addrinfo hints = hints_for(line, IBV_QPT_XRC_RECV);
  hints.ai_flags = RAI_PASSIVE;
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 1;
  if (!line.shared) wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  Endpoint listener;
  Endpoint endpoint;
  if (const int error = make_endpoint(line, hints, wanted, output, listener); error != 0) return error;
  if (const int status = await_client(listener.get(), endpoint); status != 0) return status;
  rdma_cm_id* id = endpoint.get();
  uint32_t number = 0;
  if (line.shared && make_shared_queue(id, number) != 0) return -1;
  Message message = {};
  const Region region(rdma_reg_msgs(id, message.data(), message.size()));
  if (!region) return failed("rdma_reg_msgs");
  if (rdma_post_recv(id, nullptr, message.data(), message.size(), region.get()) != 0) {
    return failed("rdma_post_recv");
  }
  rdma_conn_param answer = {};
  answer.private_data = &number;
  answer.private_data_len = sizeof number;
  if (rdma_accept(id, &answer) != 0) return failed("rdma_accept");
  describe(id, output);
  if (line.shared) output.object()["srq_number"] = be32toh(number);
  const int status = await_completion(id, rdma_get_recv_comp, "rdma_get_recv_comp");
  if (status != 0) return status;
  rdma_disconnect(id);
  return 0;
}

}  // namespace

int rdma_xclient(int argc, char** argv) {
  return run({"rdma_xclient", "127.0.0.1", true, call}, argc, argv);
}

int rdma_xserver(int argc, char** argv) {
  return run({"rdma_xserver", nullptr, true, serve}, argc, argv);
}

}  // namespace verbena::rdma_core
