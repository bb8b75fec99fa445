// SPDX-License-Identifier: Apache-2.0
// rdma_client and rdma_server: send one message in each direction.
#include <cerrno>

#include <rdma/rdma_verbs.h>

#include "commands/rdma_core/connections/cm.h"
#include "commands/rdma_core/connections/endpoints/endpoint.h"

namespace verbena::rdma_core {
namespace {

// The buffers and requests of one end.
class Messages {
 public:
  Messages(const char* name, const Output& output) : name_(name), output_(output) {}

  static ibv_qp_init_attr queue_pair() {
    ibv_qp_init_attr wanted = {};
    wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 1;
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = sizeof(Message);
    wanted.sq_sig_all = 1;
    return wanted;
  }

  // Registers the buffers and posts a receive. Called before the connection is established. `id` must outlive
  // this object.
  int prepare(rdma_cm_id* id, uint32_t inline_bytes) {
    id_ = id;
    if (inline_bytes >= sizeof(Message)) {
      send_flags_ = IBV_SEND_INLINE;
    } else {
      output_.text("%s: device doesn't support IBV_SEND_INLINE, using sge sends\n", name_);
    }
    received_region_.reset(rdma_reg_msgs(id, received_.data(), received_.size()));
    if (!received_region_) return failed("rdma_reg_msgs for recv_msg");
    if ((send_flags_ & IBV_SEND_INLINE) == 0) {
      sent_region_.reset(rdma_reg_msgs(id, sent_.data(), sent_.size()));
      if (!sent_region_) return failed("rdma_reg_msgs for send_msg");
    }
    if (rdma_post_recv(id, nullptr, received_.data(), received_.size(), received_region_.get()) != 0) {
      return failed("rdma_post_recv");
    }
    return 0;
  }

  int send() {
    if (rdma_post_send(id_, nullptr, sent_.data(), sent_.size(), sent_region_.get(), send_flags_) != 0) {
      return failed("rdma_post_send");
    }
    return await_completion(id_, rdma_get_send_comp, "rdma_get_send_comp");
  }

  int receive() { return await_completion(id_, rdma_get_recv_comp, "rdma_get_recv_comp"); }

 private:
  const char* name_;
  const Output& output_;
  rdma_cm_id* id_ = nullptr;
  int send_flags_ = 0;
  Message sent_ = {};
  Message received_ = {};
  Region sent_region_;
  Region received_region_;
};

int call(const EndpointLine& line, Output& output) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  ibv_qp_init_attr wanted = Messages::queue_pair();
  Endpoint endpoint;
  if (const int error = make_endpoint(line, hints, wanted, output, endpoint); error != 0) return error;
  rdma_cm_id* id = endpoint.get();
  Messages messages("rdma_client", output);
  if (const int status = messages.prepare(id, wanted.cap.max_inline_data); status != 0) return status;
  if (rdma_connect(id, nullptr) != 0) return failed("rdma_connect");
  describe(id, output);
  int status = messages.send();
  if (status == 0) status = messages.receive();
  rdma_disconnect(id);
  return status;
}

int serve(const EndpointLine& line, Output& output) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  ibv_qp_init_attr wanted = Messages::queue_pair();
  Endpoint listener;
  Endpoint endpoint;
  if (const int error = make_endpoint(line, hints, wanted, output, listener); error != 0) return error;
  if (const int status = await_client(listener.get(), endpoint); status != 0) return status;
  rdma_cm_id* id = endpoint.get();
  ibv_qp_attr ignored = {};
  ibv_qp_init_attr made = {};
  errno = ibv_query_qp(id->qp, &ignored, IBV_QP_CAP, &made);
  if (errno != 0) return failed("ibv_query_qp");
  Messages messages("rdma_server", output);
  if (const int status = messages.prepare(id, made.cap.max_inline_data); status != 0) return status;
  if (rdma_accept(id, nullptr) != 0) return failed("rdma_accept");
  describe(id, output);
  int status = messages.receive();
  if (status == 0) status = messages.send();
  rdma_disconnect(id);
  return status;
}

}  // namespace

int rdma_client(int argc, char** argv) {
  return run({"rdma_client", "127.0.0.1", false, call}, argc, argv);
}

int rdma_server(int argc, char** argv) {
  return run({"rdma_server", "0.0.0.0", false, serve}, argc, argv);
}

}  // namespace verbena::rdma_core
