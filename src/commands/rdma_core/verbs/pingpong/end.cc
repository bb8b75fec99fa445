// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/end.h"

#include <cerrno>
#include <cstring>

#include <malloc.h>
#include <unistd.h>

#include "base/format.h"

namespace verbena::rdma_core {
namespace {

// Hop limits of the GRH, as in rdma-core's programs.
constexpr uint8_t kHops = 1;
constexpr uint8_t kXrcHops = 5;

}  // namespace

PingpongEnd::PingpongEnd(const PingpongProgram& program, const Settings& settings)
    : program_(program), settings_(settings), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {}

void PingpongEnd::ask_for_event() {
  check(ibv_req_notify_cq(completions_.get(), 0), "Couldn't request CQ notification");
}

void PingpongEnd::await_event() {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &user) != 0) fail_of(errno, "Failed to get cq_event");
  ++events_;
  if (queue != completions_.get()) fail(verbena::format("CQ event for unknown CQ {}", verbena::ptr(queue)));
  ask_for_event();
}

void PingpongEnd::acknowledge_events() {
  if (events_ != 0 && completions_) ibv_ack_cq_events(completions_.get(), events_);
  events_ = 0;
}

void PingpongEnd::allocate(size_t size) {
  take(buffer_, static_cast<char*>(memalign(page_, size)), "Couldn't allocate work buf.");
  std::memset(buffer_.get(), program_.first_byte, size);
}

void PingpongEnd::open_device(ibv_device* device) {
  take(context_, ibv_open_device(device),
       verbena::format("Couldn't get context for {}", ibv_get_device_name(device)));
}

void PingpongEnd::make_domain() {
  if (settings_.events) {
    take(channel_, ibv_create_comp_channel(context_.get()), "Couldn't create completion channel");
  }
  take(domain_, ibv_alloc_pd(context_.get()), "Couldn't allocate PD");
}

ibv_device_attr_ex PingpongEnd::query() const {
  ibv_device_attr_ex device = {};
  check(ibv_query_device_ex(context_.get(), nullptr, &device), "Couldn't query device for its features");
  return device;
}

void PingpongEnd::use_on_demand(const ibv_device_attr_ex& device, uint32_t has) {
  const bool pages = (device.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  if (!pages || (has & program_.odp_needs) != program_.odp_needs) fail(program_.odp_refusal);
  if (settings_.implicit && (device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0) {
    fail("The device doesn't support implicit ODP");
  }
  access_ |= IBV_ACCESS_ON_DEMAND;
}

ibv_port_attr PingpongEnd::query_port(const std::string& complaint) const {
  ibv_port_attr attributes = {};
  check(ibv_query_port(context_.get(), port(), &attributes), complaint);
  return attributes;
}

uint32_t PingpongEnd::find_lid(const char* complaint) const {
  const ibv_port_attr attributes = query_port(complaint);
  if (attributes.link_layer != IBV_LINK_LAYER_ETHERNET && attributes.lid == 0) {
    fail("Couldn't get local LID", "no subnet manager has given the port one yet");
  }
  return attributes.lid;
}

ibv_gid PingpongEnd::find_gid() const {
  ibv_gid gid = {};
  if (settings_.gid_index >= 0 && ibv_query_gid(context_.get(), port(), settings_.gid_index, &gid) != 0) {
    fail_of(errno, verbena::format("{}{}", program_.gid_complaint, settings_.gid_index),
            "'ibv_devinfo -v' lists the GIDs");
  }
  return gid;
}

void PingpongEnd::initialize(ibv_qp* queue_pair, const std::string& name, unsigned access) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port();
  attributes.qkey = kQueueKey;
  attributes.qp_access_flags = access;
  const int last = datagrams() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  modify(queue_pair, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last, name, "INIT");
}

void PingpongEnd::make_ready(ibv_qp* queue_pair, const std::string& name, const Remote& remote, uint32_t psn,
                             int receive_mask, int send_mask) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = settings_.mtu;
  attributes.dest_qp_num = remote.qpn;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = extended_reliable() ? 0 : 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr = path_to(remote.lid, remote.gid);
  modify(queue_pair, attributes, receive_mask, name, "RTR");

  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = extended_reliable() ? 0 : 1;
  modify(queue_pair, attributes, send_mask, name, "RTS");
}

void PingpongEnd::modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, const std::string& name,
                         const char* state) {
  const int error = ibv_modify_qp(queue_pair, &attributes, mask);
  if (error == 0) return;
  const bool path = (mask & IBV_QP_AV) != 0;
  fail_of(error, verbena::format("Failed to modify {} to {}", name, state),
          path ? path_remedy(attributes.ah_attr.grh.dgid) : "");
}

ibv_ah_attr PingpongEnd::path_to(uint32_t lid, const ibv_gid& gid) const {
  ibv_ah_attr path = {};
  path.dlid = static_cast<uint16_t>(lid);
  path.sl = static_cast<uint8_t>(settings_.service_level);
  path.port_num = port();
  if (gid.global.interface_id != 0) {
    path.is_global = 1;
    path.grh.hop_limit = extended_reliable() ? kXrcHops : kHops;
    path.grh.dgid = gid;
    path.grh.sgid_index = static_cast<uint8_t>(settings_.gid_index);
  }
  return path;
}

std::string PingpongEnd::path_remedy(const ibv_gid& remote) const {
  ibv_port_attr attributes = {};
  const bool known = ibv_query_port(context_.get(), port(), &attributes) == 0;
  if (known && settings_.mtu > attributes.active_mtu) {
    return verbena::format("the port's MTU is {}: give both sides -m with no more",
                           1U << (attributes.active_mtu + 7));
  }
  if (settings_.gid_index < 0)
    return "Ethernet needs a GID: give both sides -g INDEX, 'ibv_devinfo -v' lists them";
  if (remote.global.interface_id == 0) return "the other side has no GID: give it -g INDEX, too";
  return "the GIDs of both sides must be of one kind: 'ibv_devinfo -v' lists those here";
}

void PingpongEnd::close_device() {
  destroy(domain_, ibv_dealloc_pd, "Couldn't deallocate PD");
  destroy(channel_, ibv_destroy_comp_channel, "Couldn't destroy completion channel");
  destroy(context_, ibv_close_device, "Couldn't release context");
}

}  // namespace verbena::rdma_core
