// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/end.h"

#include <cerrno>
#include <cstdlib>
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

bool PingpongEnd::ask_for_event() {
  const int error = ibv_req_notify_cq(completions_.get(), 0);
  if (error != 0) complain_of(error, "Couldn't request CQ notification");
  return error == 0;
}

bool PingpongEnd::await_event() {
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &user) != 0) return fail("Failed to get cq_event");
  ++events_;
  if (queue != completions_.get()) {
    complain(verbena::format("CQ event for unknown CQ {}", verbena::ptr(queue)));
    return false;
  }
  return ask_for_event();
}

void PingpongEnd::acknowledge_events() {
  if (events_ != 0 && completions_) ibv_ack_cq_events(completions_.get(), events_);
  events_ = 0;
}

bool PingpongEnd::allocate(size_t size) {
  buffer_.reset(static_cast<char*>(memalign(page_, size)));
  if (!buffer_) return fail("Couldn't allocate work buf.");
  std::memset(buffer_.get(), program_.first_byte, size);
  return true;
}

bool PingpongEnd::open_device(ibv_device* device) {
  context_.reset(ibv_open_device(device));
  return context_ || fail(verbena::format("Couldn't get context for {}", ibv_get_device_name(device)));
}

bool PingpongEnd::make_domain() {
  if (settings_.events) {
    channel_.reset(ibv_create_comp_channel(context_.get()));
    if (!channel_) return fail("Couldn't create completion channel");
  }
  domain_.reset(ibv_alloc_pd(context_.get()));
  return domain_ || fail("Couldn't allocate PD");
}

bool PingpongEnd::query(ibv_device_attr_ex& device) const {
  const int error = ibv_query_device_ex(context_.get(), nullptr, &device);
  if (error != 0) complain_of(error, "Couldn't query device for its features");
  return error == 0;
}

bool PingpongEnd::takes_on_demand(const ibv_device_attr_ex& device, uint32_t has) {
  const bool pages = (device.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  if (!pages || (has & program_.odp_needs) != program_.odp_needs) {
    complain(program_.odp_refusal);
    return false;
  }
  if (settings_.implicit && (device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0) {
    complain("The device doesn't support implicit ODP");
    return false;
  }
  access_ |= IBV_ACCESS_ON_DEMAND;
  return true;
}

bool PingpongEnd::find_lid(const char* complaint, uint32_t& lid) const {
  ibv_port_attr attributes = {};
  if (const int error = ibv_query_port(context_.get(), port(), &attributes); error != 0) {
    complain_of(error, complaint);
    return false;
  }
  lid = attributes.lid;
  if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET || lid != 0) return true;
  complain("Couldn't get local LID", "no subnet manager has given the port one yet");
  return false;
}

bool PingpongEnd::find_gid(ibv_gid& gid) const {
  if (settings_.gid_index < 0) return true;
  if (ibv_query_gid(context_.get(), port(), settings_.gid_index, &gid) == 0) return true;
  complain_of(errno, verbena::format("{}{}", program_.gid_complaint, settings_.gid_index),
              "'ibv_devinfo -v' lists the GIDs");
  return false;
}

bool PingpongEnd::initialize(ibv_qp* queue_pair, const std::string& name, unsigned access) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port();
  attributes.qkey = kQueueKey;
  attributes.qp_access_flags = access;
  const int last = datagrams() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return modify(queue_pair, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last, name, "INIT");
}

bool PingpongEnd::make_ready(ibv_qp* queue_pair, const std::string& name, const Remote& remote, uint32_t psn,
                             int receive_mask, int send_mask) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = settings_.mtu;
  attributes.dest_qp_num = remote.qpn;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = extended_reliable() ? 0 : 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr = path_to(remote.lid, remote.gid);
  if (!modify(queue_pair, attributes, receive_mask, name, "RTR")) return false;

  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = extended_reliable() ? 0 : 1;
  return modify(queue_pair, attributes, send_mask, name, "RTS");
}

bool PingpongEnd::modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, const std::string& name,
                         const char* state) {
  const int error = ibv_modify_qp(queue_pair, &attributes, mask);
  if (error == 0) return true;
  const bool path = (mask & IBV_QP_AV) != 0;
  complain_of(error, verbena::format("Failed to modify {} to {}", name, state),
              path ? path_remedy(attributes.ah_attr.grh.dgid) : "");
  return false;
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

bool PingpongEnd::close_device() {
  return destroy(domain_, ibv_dealloc_pd, "Couldn't deallocate PD") &&
         destroy(channel_, ibv_destroy_comp_channel, "Couldn't destroy completion channel") &&
         destroy(context_, ibv_close_device, "Couldn't release context");
}

uint32_t new_psn() {
  return static_cast<uint32_t>(lrand48()) & 0xffffff;
}

}  // namespace verbena::rdma_core
