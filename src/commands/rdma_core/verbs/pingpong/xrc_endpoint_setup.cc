// SPDX-License-Identifier: Apache-2.0
// Creates an XrcEndpoint's objects and connects its queue pairs.
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "commands/rdma_core/verbs/pingpong/endpoint.h"
#include "commands/rdma_core/verbs/pingpong/xrc_endpoint.h"

namespace verbena::rdma_core {
namespace {

// The file that identifies the XRC domain of clients on one host, the same as rdma-core's.
constexpr const char* kDomainFile = "/tmp/xrc_domain";
constexpr uint8_t kXrcHops = 5;
constexpr int kXrcConnected = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kXrcSends = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;

}  // namespace

bool XrcEndpoint::open(ibv_device* device) {
  context_.reset(ibv_open_device(device));
  if (!context_) return fail(verbena::format("Couldn't get context for {}", ibv_get_device_name(device)));
  if (!has_features() || !check_port() || !allocate()) return false;
  if (settings_.events) {
    channel_.reset(ibv_create_comp_channel(context_.get()));
    if (!channel_) return fail("Couldn't create completion channel");
  }
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (!domain_) return fail("Couldn't allocate PD");
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
  if (const int error = ibv_query_device_ex(context_.get(), nullptr, &device); error != 0) {
    complain_of(error, "Couldn't query device for its features");
    return false;
  }
  const bool pages = (device.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  if (!pages || (device.xrc_odp_caps & program_.odp_needs) != program_.odp_needs) {
    complain(program_.odp_refusal);
    return false;
  }
  access_ |= IBV_ACCESS_ON_DEMAND;
  return true;
}

bool XrcEndpoint::check_port() {
  ibv_port_attr port = {};
  if (const int error = ibv_query_port(context_.get(), static_cast<uint8_t>(settings_.ib_port), &port);
      error != 0) {
    complain_of(error, "Failed to get port info");
    return false;
  }
  lid_ = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET || lid_ != 0) return true;
  complain("Couldn't get local LID", "no subnet manager has given the port one yet");
  return false;
}

bool XrcEndpoint::allocate() {
  buffer_.reset(static_cast<char*>(memalign(static_cast<size_t>(sysconf(_SC_PAGESIZE)), settings_.size)));
  if (!buffer_) return fail("Couldn't allocate work buf.");
  std::memset(buffer_.get(), program_.first_byte, settings_.size);
  return true;
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
  received_.reset(ibv_create_cq(context_.get(), entries, nullptr, channel_.get(), 0));
  if (!received_) return fail("Couldn't create recv CQ");
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
  attributes.cq = received_.get();
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
  if (!initialize(receiving_.back().get(), IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, "recv", index)) {
    return false;
  }
  sending_.push_back(make_sending());
  if (!sending_.back()) return refused("send");
  return initialize(sending_.back().get(), 0, "send", index);
}

bool XrcEndpoint::initialize(ibv_qp* queue_pair, int access, const char* what, size_t index) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(settings_.ib_port);
  attributes.qp_access_flags = static_cast<unsigned>(access);
  return modify(queue_pair, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                verbena::format("{} QP[{}]", what, index), "INIT");
}

std::optional<XrcAddress> XrcEndpoint::address(size_t index) {
  XrcAddress address;
  if (settings_.gid_index >= 0 && ibv_query_gid(context_.get(), static_cast<uint8_t>(settings_.ib_port),
                                                settings_.gid_index, &address.gid) != 0) {
    complain_of(errno, verbena::format("{}{}", program_.gid_complaint, settings_.gid_index),
                "'ibv_devinfo -v' lists the GIDs");
    return std::nullopt;
  }
  if (const int error = ibv_get_srq_num(shared_.get(), &address.srqn); error != 0) {
    complain_of(error, "Couldn't get SRQ num");
    return std::nullopt;
  }
  psns_[index] = static_cast<uint32_t>(lrand48()) & 0xffffff;
  address.lid = lid_;
  address.receiving_qpn = receiving_[index]->qp_num;
  address.sending_qpn = sending_[index]->qp_num;
  address.psn = psns_[index];
  return address;
}

bool XrcEndpoint::connect(size_t index, const XrcAddress& remote) {
  return connect_receiving(index, remote) && connect_sending(index, remote);
}

bool XrcEndpoint::connect_receiving(size_t index, const XrcAddress& remote) {
  const std::string name = verbena::format("recv QP[{}]", index);
  ibv_qp* queue_pair = receiving_[index].get();
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.dest_qp_num = remote.sending_qpn;
  attributes.path_mtu = settings_.mtu;
  attributes.rq_psn = remote.psn;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr = path_to(settings_, static_cast<uint16_t>(remote.lid), remote.gid, kXrcHops);
  if (!modify(queue_pair, attributes, kXrcConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, name,
              "RTR")) {
    return false;
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.sq_psn = psns_[index];
  return modify(queue_pair, attributes, kXrcSends, name, "RTS");
}

bool XrcEndpoint::connect_sending(size_t index, const XrcAddress& remote) {
  const std::string name = verbena::format("send QP[{}]", index);
  ibv_qp* queue_pair = sending_[index].get();
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.dest_qp_num = remote.receiving_qpn;
  attributes.path_mtu = settings_.mtu;
  attributes.rq_psn = remote.psn;
  attributes.ah_attr = path_to(settings_, static_cast<uint16_t>(remote.lid), remote.gid, kXrcHops);
  if (!modify(queue_pair, attributes, kXrcConnected, name, "RTR")) return false;
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.sq_psn = psns_[index];
  return modify(queue_pair, attributes,
                kXrcSends | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, name, "RTS");
}

bool XrcEndpoint::modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, const std::string& what,
                         const char* state) {
  const int error = ibv_modify_qp(queue_pair, &attributes, mask);
  if (error == 0) return true;
  const bool path = (mask & IBV_QP_AV) != 0;
  complain_of(error, verbena::format("Failed to modify {} to {}", what, state),
              path ? path_remedy(context_.get(), settings_, attributes.ah_attr.grh.dgid) : "");
  return false;
}

}  // namespace verbena::rdma_core
