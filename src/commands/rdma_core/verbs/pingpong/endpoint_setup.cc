// SPDX-License-Identifier: Apache-2.0
// Creates an Endpoint's objects and connects its queue pairs.
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <malloc.h>

#include "base/format.h"
#include "commands/rdma_core/verbs/pingpong/endpoint.h"

namespace verbena::rdma_core {
namespace {

constexpr uint8_t kHops = 1;

// Attribute masks for the transitions of RC and UC queue pairs.
constexpr int kConnected = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kReliableReady = kConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSends = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kReliableSends =
    kSends | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

}  // namespace

bool Endpoint::open(ibv_device* device) {
  if (!allocate()) return false;
  context_.reset(ibv_open_device(device));
  if (!context_) return fail(verbena::format("Couldn't get context for {}", ibv_get_device_name(device)));
  if (datagrams() && !fits_port()) return false;
  if (settings_.events) {
    channel_.reset(ibv_create_comp_channel(context_.get()));
    if (!channel_) return fail("Couldn't create completion channel");
  }
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (!domain_) return fail("Couldn't allocate PD");
  return has_features() && register_memory() && make_completion_queue() && make_queue_pairs();
}

bool Endpoint::allocate() {
  const size_t size = settings_.size + headroom();
  buffer_.reset(static_cast<char*>(memalign(page_, size)));
  if (!buffer_) return fail("Couldn't allocate work buf.");
  std::memset(buffer_.get(), program_.first_byte, size);
  return true;
}

bool Endpoint::fits_port() const {
  ibv_port_attr port = {};
  if (const int error = ibv_query_port(context_.get(), static_cast<uint8_t>(settings_.ib_port), &port);
      error) {
    complain_of(error, verbena::format("Unable to query port info for port {}", settings_.ib_port));
    return false;
  }
  const unsigned mtu = 1U << (port.active_mtu + 7);
  if (settings_.size <= mtu) return true;
  complain(verbena::format("Requested size larger than port MTU ({})", mtu),
           "a datagram is one packet; -s says its size");
  return false;
}

bool Endpoint::has_features() {
  if (!settings_.on_demand && !settings_.timestamps && !settings_.device_memory) return true;
  ibv_device_attr_ex device = {};
  if (const int error = ibv_query_device_ex(context_.get(), nullptr, &device); error != 0) {
    complain_of(error, "Couldn't query device for its features");
    return false;
  }
  if (settings_.on_demand) {
    const uint32_t has = device.odp_caps.per_transport_caps.rc_odp_caps;
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
  }
  if (settings_.timestamps && device.completion_timestamp_mask == 0) {
    complain("The device isn't completion timestamp capable");
    return false;
  }
  timestamp_mask_ = device.completion_timestamp_mask;
  return !settings_.device_memory || takes_device_memory(device);
}

bool Endpoint::takes_device_memory(const ibv_device_attr_ex& device) {
  if (device.max_dm_size == 0) {
    complain("Device doesn't support dm allocation");
    return false;
  }
  if (device.max_dm_size < settings_.size) {
    complain("Device memory is insufficient", verbena::format("it has {} bytes", device.max_dm_size));
    return false;
  }
  ibv_alloc_dm_attr attributes = {};
  attributes.length = settings_.size;
  device_memory_.reset(ibv_alloc_dm(context_.get(), &attributes));
  if (!device_memory_) return fail("Dev mem allocation failed");
  access_ |= IBV_ACCESS_ZERO_BASED;
  return true;
}

bool Endpoint::register_memory() {
  const auto access = static_cast<unsigned>(access_);
  const size_t size = settings_.size + headroom();
  if (settings_.implicit) {
    region_.reset(ibv_reg_mr(domain_.get(), nullptr, SIZE_MAX, access_));
  } else if (device_memory_) {
    region_.reset(ibv_reg_dm_mr(domain_.get(), device_memory_.get(), 0, size, access));
  } else {
    region_.reset(ibv_reg_mr(domain_.get(), buffer_.get(), size, access_));
  }
  if (!region_) return fail("Couldn't register MR");
  if (settings_.prefetch) prefetch();
  return true;
}

void Endpoint::prefetch() {
  ibv_sge all = piece(false);
  const int error = ibv_advise_mr(domain_.get(), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                  IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &all, 1);
  if (error != 0)
    complain(verbena::format("Couldn't prefetch MR({}). Continue anyway", error), std::strerror(error));
}

bool Endpoint::make_completion_queue() {
  const int entries = static_cast<int>(settings_.receives + settings_.queue_pairs);
  if (settings_.timestamps) {
    ibv_cq_init_attr_ex attributes = {};
    attributes.cqe = static_cast<uint32_t>(entries);
    attributes.channel = channel_.get();
    attributes.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_QP_NUM;
    extended_ = ibv_create_cq_ex(context_.get(), &attributes);
    completions_.reset(extended_ ? ibv_cq_ex_to_cq(extended_) : nullptr);
  } else {
    completions_.reset(ibv_create_cq(context_.get(), entries, nullptr, channel_.get(), 0));
  }
  return completions_ || fail("Couldn't create CQ");
}

bool Endpoint::make_queue_pairs() {
  if (program_.shared_receives) {
    ibv_srq_init_attr attributes = {};
    attributes.attr.max_wr = settings_.receives;
    attributes.attr.max_sge = 1;
    shared_.reset(ibv_create_srq(domain_.get(), &attributes));
    if (!shared_) return fail("Couldn't create SRQ");
  }
  for (size_t i = 0; i < settings_.queue_pairs; ++i) {
    queue_pairs_.push_back(make_queue_pair());
    if (!queue_pairs_.back()) return fail(verbena::format("Couldn't create {}", name_of(i)));
  }
  for (size_t i = 0; i < settings_.queue_pairs; ++i) {
    if (!initialize(i)) return false;
  }
  return true;
}

QueuePair Endpoint::make_queue_pair() {
  ibv_qp_init_attr_ex wanted = {};
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.srq = shared_.get();
  wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  if (!shared_) {
    wanted.cap.max_recv_wr = settings_.receives;
    wanted.cap.max_recv_sge = 1;
  }
  wanted.qp_type = program_.type;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = domain_.get();
  if (settings_.new_send) {
    wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = IBV_QP_EX_WITH_SEND;
  }
  QueuePair made(ibv_create_qp_ex(context_.get(), &wanted));
  if (!made) return made;
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr has = {};
  ibv_query_qp(made.get(), &attributes, IBV_QP_CAP, &has);
  if (has.cap.max_inline_data >= settings_.size && !device_memory_) send_flags_ |= IBV_SEND_INLINE;
  return made;
}

bool Endpoint::initialize(size_t index) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(settings_.ib_port);
  attributes.qkey = kQueueKey;
  const int last = datagrams() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return modify(index, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last, "INIT");
}

bool Endpoint::connect(std::span<const Address> local, std::span<const Address> remote) {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (!make_ready(i, local[i], remote[i])) return false;
  }
  return !datagrams() || make_address_handle(remote[0]);
}

bool Endpoint::make_ready(size_t index, const Address& local, const Address& remote) {
  const bool reliable = program_.type == IBV_QPT_RC;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = settings_.mtu;
  attributes.dest_qp_num = remote.qpn;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr = path_to(remote);
  const int ready = datagrams() ? IBV_QP_STATE : reliable ? kReliableReady : kConnected;
  if (!modify(index, attributes, ready, "RTR")) return false;

  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.sq_psn = local.psn;
  attributes.max_rd_atomic = 1;
  return modify(index, attributes, reliable ? kReliableSends : kSends, "RTS");
}

bool Endpoint::make_address_handle(const Address& remote) {
  ibv_ah_attr path = path_to(remote);
  handle_.reset(ibv_create_ah(domain_.get(), &path));
  remote_qpn_ = remote.qpn;
  if (handle_) return true;
  complain_of(errno, "Failed to create AH", path_remedy(context_.get(), settings_, remote.gid));
  return false;
}

bool Endpoint::modify(size_t index, ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = ibv_modify_qp(queue_pairs_[index].get(), &attributes, mask);
  if (error == 0) return true;
  const bool path = (mask & IBV_QP_AV) != 0;
  complain_of(error, verbena::format("Failed to modify {} to {}", name_of(index), state),
              path ? path_remedy(context_.get(), settings_, attributes.ah_attr.grh.dgid) : "");
  return false;
}

ibv_ah_attr Endpoint::path_to(const Address& remote) const {
  return rdma_core::path_to(settings_, static_cast<uint16_t>(remote.lid), remote.gid, kHops);
}

ibv_ah_attr path_to(const Settings& settings, uint16_t lid, const ibv_gid& gid, uint8_t hops) {
  ibv_ah_attr path = {};
  path.dlid = lid;
  path.sl = static_cast<uint8_t>(settings.service_level);
  path.port_num = static_cast<uint8_t>(settings.ib_port);
  if (gid.global.interface_id != 0) {
    path.is_global = 1;
    path.grh.hop_limit = hops;
    path.grh.dgid = gid;
    path.grh.sgid_index = static_cast<uint8_t>(settings.gid_index);
  }
  return path;
}

std::string path_remedy(ibv_context* context, const Settings& settings, const ibv_gid& remote) {
  ibv_port_attr port = {};
  const bool known = ibv_query_port(context, static_cast<uint8_t>(settings.ib_port), &port) == 0;
  if (known && settings.mtu > port.active_mtu) {
    return verbena::format("the port's MTU is {}: give both sides -m with no more",
                           1U << (port.active_mtu + 7));
  }
  if (settings.gid_index < 0)
    return "Ethernet needs a GID: give both sides -g INDEX, 'ibv_devinfo -v' lists them";
  if (remote.global.interface_id == 0) return "the other side has no GID: give it -g INDEX, too";
  return "the GIDs of both sides must be of one kind: 'ibv_devinfo -v' lists those here";
}

}  // namespace verbena::rdma_core
