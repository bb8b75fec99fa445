// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/xrc_endpoint.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/format.h"

namespace verbena::rdma_core {
namespace {

// The file that identifies the XRC domain of clients on one host, the same as rdma-core's.
constexpr const char* kDomainFile = "/tmp/xrc_domain";

// Attribute masks for RTR and RTS.
constexpr int kReceivesReady = kConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kReceives = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
constexpr int kXrcSends = kReceives | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

}  // namespace

bool XrcEndpoint::open(ibv_device* device) {
  if (!open_device(device) || !has_features() || !find_lid("Failed to get port info", lid_)) return false;
  if (!allocate(settings_.size) || !make_domain()) return false;
  region_.reset(ibv_reg_mr(domain_.get(), buffer_.get(), settings_.size, access_));
  if (!region_) return fail("Couldn't register MR");
  if (!open_domain() || !make_queues()) return false;
  psns_.resize(ends());
  for (size_t i = 0; i < ends(); ++i) {
    if (!make_pair(i)) return false;
  }
  for (size_t i = 0; i < ends(); ++i) {
    if (!post_receive()) {
      complain("Couldn't post receives");
      return false;
    }
  }
  return true;
}

bool XrcEndpoint::has_features() {
  if (!settings_.on_demand) return true;
  ibv_device_attr_ex device = {};
  return query(device) && takes_on_demand(device, device.xrc_odp_caps);
}

bool XrcEndpoint::open_domain() {
  file_.reset(::open(kDomainFile, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IRGRP));
  if (!file_) {
    complain(verbena::format("Couldn't create the file for the XRC Domain but not stopping {}", errno),
             verbena::format("{}: {}; one client of this host works, several do not", kDomainFile,
                             std::strerror(errno)));
  }
  ibv_xrcd_init_attr attributes = {};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = file_.get();
  attributes.oflags = O_CREAT;
  xrc_domain_.reset(ibv_open_xrcd(context_.get(), &attributes));
  if (xrc_domain_) return true;
  complain(verbena::format("Couldn't Open the XRC Domain {}", errno), std::strerror(errno));
  return false;
}

bool XrcEndpoint::make_queues() {
  const int entries = static_cast<int>(ends());
  completions_.reset(ibv_create_cq(context_.get(), entries, nullptr, channel_.get(), 0));
  if (!completions_) return fail("Couldn't create recv CQ");
  if (settings_.events && !ask_for_event()) return false;
  sent_.reset(ibv_create_cq(context_.get(), entries, nullptr, nullptr, 0));
  if (!sent_) return fail("Couldn't create send CQ");

  ibv_srq_init_attr_ex attributes = {};
  attributes.attr.max_wr = static_cast<uint32_t>(ends());
  attributes.attr.max_sge = 1;
  attributes.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
  attributes.srq_type = IBV_SRQT_XRC;
  attributes.xrcd = xrc_domain_.get();
  attributes.cq = completions_.get();
  attributes.pd = domain_.get();
  shared_.reset(ibv_create_srq_ex(context_.get(), &attributes));
  return shared_ || fail("Couldn't create SRQ");
}

QueuePair XrcEndpoint::make_receiving() const {
  ibv_qp_init_attr_ex wanted = {};
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  wanted.xrcd = xrc_domain_.get();
  return QueuePair(ibv_create_qp_ex(context_.get(), &wanted));
}

QueuePair XrcEndpoint::make_sending() const {
  ibv_qp_init_attr_ex wanted = {};
  wanted.qp_type = IBV_QPT_XRC_SEND;
  wanted.send_cq = sent_.get();
  wanted.cap.max_send_wr = settings_.clients * settings_.iterations;
  wanted.cap.max_send_sge = 1;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = domain_.get();
  return QueuePair(ibv_create_qp_ex(context_.get(), &wanted));
}

bool XrcEndpoint::make_pair(size_t index) {
  const auto refused = [index](const char* which) {
    complain(verbena::format("Couldn't create {} QP[{}] errno {}", which, index, errno),
             std::strerror(errno));
    return false;
  };
  receiving_.push_back(make_receiving());
  if (!receiving_.back()) return refused("recv");
  if (!initialize(receiving_.back().get(), verbena::format("recv QP[{}]", index),
                  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) {
    return false;
  }
  sending_.push_back(make_sending());
  if (!sending_.back()) return refused("send");
  return initialize(sending_.back().get(), verbena::format("send QP[{}]", index));
}

std::optional<XrcAddress> XrcEndpoint::address(size_t index) {
  XrcAddress address;
  if (!find_gid(address.gid)) return std::nullopt;
  if (const int error = ibv_get_srq_num(shared_.get(), &address.srqn); error != 0) {
    complain_of(error, "Couldn't get SRQ num");
    return std::nullopt;
  }
  psns_[index] = new_psn();
  address.lid = lid_;
  address.receiving_qpn = receiving_[index]->qp_num;
  address.sending_qpn = sending_[index]->qp_num;
  address.psn = psns_[index];
  return address;
}

bool XrcEndpoint::connect(size_t index, const XrcAddress& remote) {
  return make_ready(receiving_[index].get(), verbena::format("recv QP[{}]", index),
                    {remote.lid, remote.gid, remote.sending_qpn, remote.psn}, psns_[index], kReceivesReady,
                    kReceives) &&
         make_ready(sending_[index].get(), verbena::format("send QP[{}]", index),
                    {remote.lid, remote.gid, remote.receiving_qpn, remote.psn}, psns_[index], kConnected,
                    kXrcSends);
}

ibv_sge XrcEndpoint::piece() const {
  return {reinterpret_cast<uintptr_t>(buffer_.get()), settings_.size, region_->lkey};
}

bool XrcEndpoint::post_send(const XrcAddress& remote, size_t queue_pair, bool last) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_SEND;
  request.send_flags = last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
  request.qp_type.xrc.remote_srqn = remote.srqn;
  const int error = rdma_core::post_send(sending_[queue_pair].get(), piece(), request);
  if (error != 0) complain_of(error, "Couldn't post send");
  return error == 0;
}

bool XrcEndpoint::post_receive() {
  const int error = rdma_core::post_receive(shared_.get(), piece());
  if (error != 0) complain_of(error, "Failed to post receive to SRQ");
  return error == 0;
}

bool XrcEndpoint::poll(ibv_cq* queue, ibv_wc& completion, bool& came) const {
  const int count = ibv_poll_cq(queue, 1, &completion);
  came = count > 0;
  if (count < 0) {
    complain(verbena::format("Error polling cq {}", count));
    return false;
  }
  if (!came || completion.status == IBV_WC_SUCCESS) return true;
  complain(verbena::format("Work completion error {}", static_cast<int>(completion.status)),
           ibv_wc_status_str(completion.status));
  return false;
}

bool XrcEndpoint::poll_received(std::optional<size_t>& from) {
  ibv_wc completion = {};
  bool came = false;
  from.reset();
  if (!poll(completions_.get(), completion, came)) return false;
  if (!came) return true;
  from = 0;
  if (ends() == 1) return true;  // the server's messages may come through other clients' queue pairs
  while (*from < ends() && receiving_[*from]->qp_num != completion.qp_num) ++*from;
  if (*from < ends()) return true;
  complain(verbena::format("Unable to find qp {:x}", completion.qp_num));
  return false;
}

bool XrcEndpoint::await_sent() {
  for (size_t done = 0; done < ends();) {
    ibv_wc completion = {};
    bool came = false;
    if (!poll(sent_.get(), completion, came)) return false;
    if (came) ++done;
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
         destroy(completions_, ibv_destroy_cq, "Couldn't destroy recv CQ") &&
         destroy(region_, ibv_dereg_mr, "Couldn't deregister MR") && close_device();
}

}  // namespace verbena::rdma_core
