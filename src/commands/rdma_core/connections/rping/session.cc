// SPDX-License-Identifier: Apache-2.0
// Construction and destruction of a session.
#include "commands/rdma_core/connections/rping/session.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/addresses.h"

namespace verbena::rdma_core {
namespace {

constexpr int kSendDepth = 16;
constexpr int kWholeAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

Session::Session(const PingPlan& plan, rdma_event_channel* channel, rdma_cm_id* id)
    : plan_(plan), channel_(channel), id_(id) {}

Session::~Session() = default;

void Session::debug(const char* format, ...) const {
  if (!plan_.debug) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(plan_.json ? stderr : stdout, format, arguments);
  va_end(arguments);
}

bool Session::prepare() {
  domain_.reset(ibv_alloc_pd(id_->verbs));
  if (!domain_) return failed("ibv_alloc_pd failed") == 0;
  debug("created pd %p\n", static_cast<void*>(domain_.get()));
  completions_.reset(ibv_create_comp_channel(id_->verbs));
  if (!completions_) return failed("ibv_create_comp_channel failed") == 0;
  debug("created channel %p\n", static_cast<void*>(completions_.get()));
  queue_.reset(ibv_create_cq(id_->verbs, kSendDepth * 2, this, completions_.get(), 0));
  if (!queue_) return failed("ibv_create_cq failed") == 0;
  debug("created cq %p\n", static_cast<void*>(queue_.get()));
  if (ibv_req_notify_cq(queue_.get(), 0) != 0) return failed("ibv_req_notify_cq failed") == 0;
  return make_queue_pair() && make_buffers() && post_receive();
}

bool Session::make_queue_pair() {
  ibv_qp_init_attr wanted = {};
  wanted.cap.max_send_wr = kSendDepth;
  wanted.cap.max_recv_wr = 2;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_send_sge = 1;
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = queue_.get();
  wanted.recv_cq = queue_.get();
  if (!plan_.own_queue_pair) {
    if (rdma_create_qp(id_, domain_.get(), &wanted) != 0) return failed("rdma_create_qp") == 0;
    pair_of_id_.reset(id_);
    debug("created qp %p\n", static_cast<void*>(id_->qp));
    return true;
  }
  own_pair_.reset(ibv_create_qp(domain_.get(), &wanted));
  if (!own_pair_) return failed("ibv_create_qp") == 0;
  ibv_qp_attr initial = {};
  initial.qp_state = IBV_QPS_INIT;
  initial.port_num = id_->port_num;
  errno = ibv_modify_qp(own_pair_.get(), &initial,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (errno != 0) return failed("ibv_modify_qp") == 0;
  debug("created qp %p\n", static_cast<void*>(own_pair_.get()));
  return true;
}

bool Session::make_buffer(Buffer& buffer, size_t bytes, int access, const char* name) {
  buffer.bytes.resize(bytes);
  buffer.region.reset(ibv_reg_mr(domain_.get(), buffer.bytes.data(), bytes, access));
  if (!buffer.region) return failed(verbena::format("{} reg_mr failed", name)) == 0;
  return true;
}

bool Session::make_buffers() {
  const auto bytes = static_cast<size_t>(plan_.bytes);
  const bool made = make_buffer(received_, kAdvertisementBytes, IBV_ACCESS_LOCAL_WRITE, "recv_buf") &&
                    make_buffer(sent_, kAdvertisementBytes, 0, "send_buf") &&
                    make_buffer(sink_, bytes, kWholeAccess, "rdma_buf") &&
                    (plan_.server || make_buffer(source_, bytes, kWholeAccess, "start_buf"));
  if (made) debug("allocated & registered buffers...\n");
  return made;
}

rdma_conn_param Session::connection() const {
  rdma_conn_param wanted = {};
  wanted.responder_resources = 1;
  wanted.initiator_depth = 1;
  wanted.retry_count = 7;
  wanted.rnr_retry_count = 7;
  if (own_pair_) wanted.qp_num = own_pair_->qp_num;
  return wanted;
}

bool Session::bring_up() {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes = {};
    int mask = 0;
    attributes.qp_state = state;
    if (rdma_init_qp_attr(id_, &attributes, &mask) != 0) return failed("rdma_init_qp_attr") == 0;
    errno = ibv_modify_qp(own_pair_.get(), &attributes, mask);
    if (errno != 0) return failed("rping_modify_qp") == 0;
  }
  return true;
}

bool Session::connect() {
  rdma_conn_param wanted = connection();
  if (rdma_connect(id_, &wanted) != 0) return failed("rdma_connect") == 0;
  if (!await(Step::kConnected, "CONNECTED")) return false;
  if (own_pair_) {
    if (!bring_up()) return false;
    if (rdma_establish(id_) != 0) return failed("rdma_establish") == 0;
  }
  debug("rdma_connect successful\n");
  return true;
}

bool Session::accept() {
  debug("accepting client connection request\n");
  rdma_conn_param answer = connection();
  if (own_pair_ && !bring_up()) return false;
  if (rdma_accept(id_, own_pair_ ? &answer : nullptr) != 0) return failed("rdma_accept") == 0;
  return await_connected();
}

bool Session::disconnect() {
  if (own_pair_) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    errno = ibv_modify_qp(own_pair_.get(), &attributes, IBV_QP_STATE);
    if (errno != 0) return failed("ibv_modify_qp") == 0;
  }
  const bool was_there = step_ != Step::kDisconnected;
  if (rdma_disconnect(id_) != 0) return false;
  // Wait for the peer's reply; librdmacm generates the event if none comes.
  while (was_there && step_ != Step::kDisconnected && step_ != Step::kError && progress()) {
  }
  return true;
}

nlohmann::ordered_json Session::description() const {
  const ibv_qp* pair = own_pair_ ? own_pair_.get() : id_->qp;
  return {{"device", id_->verbs != nullptr ? ibv_get_device_name(id_->verbs->device) : ""},
          {"local", shown(rdma_get_local_addr(id_))},
          {"peer", shown(rdma_get_peer_addr(id_))},
          {"qp_number", pair != nullptr ? pair->qp_num : 0}};
}

}  // namespace verbena::rdma_core
