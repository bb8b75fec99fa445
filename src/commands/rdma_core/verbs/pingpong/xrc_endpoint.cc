// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/xrc_endpoint.h"

#include <cerrno>

#include "base/format.h"

namespace verbena::rdma_core {

XrcEndpoint::~XrcEndpoint() {
  acknowledge_events();
}

void XrcEndpoint::acknowledge_events() {
  if (events_ != 0 && received_) ibv_ack_cq_events(received_.get(), events_);
  events_ = 0;
}

bool XrcEndpoint::post_send(const XrcAddress& remote, size_t queue_pair, bool last) {
  ibv_sge all = {reinterpret_cast<uintptr_t>(buffer_.get()), settings_.size, region_->lkey};
  ibv_send_wr request = {};
  request.sg_list = &all;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
  request.qp_type.xrc.remote_srqn = remote.srqn;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(sending_[queue_pair].get(), &request, &refused);
  if (error != 0) complain_of(error, "Couldn't post send");
  return error == 0;
}

bool XrcEndpoint::post_receive() {
  ibv_sge all = {reinterpret_cast<uintptr_t>(buffer_.get()), settings_.size, region_->lkey};
  ibv_recv_wr request = {};
  request.sg_list = &all;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_srq_recv(shared_.get(), &request, &refused);
  if (error != 0) complain_of(error, "Failed to post receive to SRQ");
  return error == 0;
}

bool XrcEndpoint::ask_for_event() {
  const int error = ibv_req_notify_cq(received_.get(), 0);
  if (error != 0) complain_of(error, "Couldn't request CQ notification");
  return error == 0;
}

bool XrcEndpoint::await_event() {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &user) != 0) {
    complain_of(errno, "Failed to get cq_event");
    return false;
  }
  ++events_;
  return ask_for_event();
}

bool XrcEndpoint::poll_received(bool& came, size_t& from) {
  ibv_wc completion = {};
  const int count = ibv_poll_cq(received_.get(), 1, &completion);
  came = count > 0;
  if (count < 0) {
    complain(verbena::format("Error polling cq {}", count));
    return false;
  }
  if (!came) return true;
  if (completion.status != IBV_WC_SUCCESS) {
    complain(verbena::format("Work completion error {}", static_cast<int>(completion.status)),
             ibv_wc_status_str(completion.status));
    return false;
  }
  from = 0;
  if (ends() == 1) return true;  // the server's messages may come through other clients' queue pairs
  while (from < ends() && receiving_[from]->qp_num != completion.qp_num) ++from;
  if (from < ends()) return true;
  complain(verbena::format("Unable to find qp {:x}", completion.qp_num));
  return false;
}

bool XrcEndpoint::await_sent() {
  for (size_t done = 0; done < ends();) {
    ibv_wc completion = {};
    const int count = ibv_poll_cq(sent_.get(), 1, &completion);
    if (count < 0) {
      complain(verbena::format("Error polling cq {}", count));
      return false;
    }
    if (count > 0 && completion.status != IBV_WC_SUCCESS) {
      complain(verbena::format("Work completion error {}", static_cast<int>(completion.status)),
               ibv_wc_status_str(completion.status));
      return false;
    }
    done += static_cast<size_t>(count);
  }
  return true;
}

bool XrcEndpoint::close() {
  acknowledge_events();
  for (size_t i = 0; i < ends(); ++i) {
    if (!destroy(sending_[i], ibv_destroy_qp, verbena::format("Couldn't destroy INI QP[{}]", i)) ||
        !destroy(receiving_[i], ibv_destroy_qp, verbena::format("Couldn't destroy TGT QP[{}]", i))) {
      return false;
    }
  }
  return destroy(shared_, ibv_destroy_srq, "Couldn't destroy SRQ") &&
         destroy(xrc_domain_, close_xrc_domain, "Couldn't close the XRC Domain") &&
         destroy(sent_, ibv_destroy_cq, "Couldn't destroy send CQ") &&
         destroy(received_, ibv_destroy_cq, "Couldn't destroy recv CQ") &&
         destroy(region_, ibv_dereg_mr, "Couldn't deregister MR") &&
         destroy(domain_, ibv_dealloc_pd, "Couldn't deallocate PD") &&
         destroy(channel_, ibv_destroy_comp_channel, "Couldn't destroy completion channel") &&
         destroy(context_, ibv_close_device, "Couldn't release context");
}

}  // namespace verbena::rdma_core
