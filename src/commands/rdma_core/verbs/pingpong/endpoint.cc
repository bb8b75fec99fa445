// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/endpoint.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/format.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kNetworkHeader = 40;

// Attribute masks for the transitions of RC and UC queue pairs.
constexpr int kReliableReady = kConnected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSends = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kReliableSends =
    kSends | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

}  // namespace

bool Endpoint::open(ibv_device* device) {
  return allocate(settings_.size + headroom()) && open_device(device) && (!datagrams() || fits_port()) &&
         make_domain() && has_features() && register_memory() && make_completion_queue() &&
         make_queue_pairs();
}

bool Endpoint::fits_port() const {
  ibv_port_attr attributes = {};
  if (const int error = ibv_query_port(context_.get(), port(), &attributes); error != 0) {
    complain_of(error, verbena::format("Unable to query port info for port {}", settings_.ib_port));
    return false;
  }
  const unsigned mtu = 1U << (attributes.active_mtu + 7);
  if (settings_.size <= mtu) return true;
  complain(verbena::format("Requested size larger than port MTU ({})", mtu),
           "a datagram is one packet; -s says its size");
  return false;
}

bool Endpoint::has_features() {
  if (!settings_.on_demand && !settings_.timestamps && !settings_.device_memory) return true;
  ibv_device_attr_ex device = {};
  if (!query(device)) return false;
  if (settings_.on_demand && !takes_on_demand(device, device.odp_caps.per_transport_caps.rc_odp_caps)) {
    return false;
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
    if (!initialize(queue_pairs_[i].get(), name_of(i))) return false;
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

bool Endpoint::connect(std::span<const Address> local, std::span<const Address> remote) {
  const bool reliable = program_.type == IBV_QPT_RC;
  const int receive_mask = datagrams() ? IBV_QP_STATE : reliable ? kReliableReady : kConnected;
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    const Remote end = {remote[i].lid, remote[i].gid, remote[i].qpn, remote[i].psn};
    if (!make_ready(queue_pairs_[i].get(), name_of(i), end, local[i].psn, receive_mask,
                    reliable ? kReliableSends : kSends)) {
      return false;
    }
  }
  return !datagrams() || make_address_handle(remote[0]);
}

bool Endpoint::make_address_handle(const Address& remote) {
  ibv_ah_attr path = path_to(remote.lid, remote.gid);
  handle_.reset(ibv_create_ah(domain_.get(), &path));
  remote_qpn_ = remote.qpn;
  if (handle_) return true;
  complain_of(errno, "Failed to create AH", path_remedy(remote.gid));
  return false;
}

size_t Endpoint::headroom() const {
  return datagrams() ? kNetworkHeader : 0;
}

std::string Endpoint::name_of(size_t index) const {
  return program_.shared_receives ? verbena::format("QP[{}]", index) : "QP";
}

ibv_sge Endpoint::piece(bool sent) const {
  const size_t before = sent ? headroom() : 0;
  const uint64_t start = device_memory_ ? 0 : reinterpret_cast<uintptr_t>(buffer_.get());
  return {start + before, static_cast<uint32_t>(settings_.size + headroom() - before), region_->lkey};
}

std::optional<std::vector<Address>> Endpoint::addresses() const {
  Address address;
  if (!find_lid("Couldn't get port info", address.lid) || !find_gid(address.gid)) return std::nullopt;
  std::vector<Address> all;
  for (const QueuePair& each : queue_pairs_) {
    address.qpn = each->qp_num;
    address.psn = new_psn();
    all.push_back(address);
  }
  return all;
}

unsigned Endpoint::post_receives(unsigned count) {
  const ibv_sge all = piece(false);
  for (unsigned i = 0; i < count; ++i) {
    const int error = shared_ ? post_receive(shared_.get(), all, kReceive)
                              : post_receive(queue_pairs_.front().get(), all, kReceive);
    if (error != 0) return i;
  }
  return count;
}

bool Endpoint::post_send(size_t index) {
  const ibv_sge all = piece(true);
  int error = 0;
  if (settings_.new_send) {
    ibv_qp_ex* queue_pair = ibv_qp_to_qp_ex(queue_pairs_[index].get());
    ibv_wr_start(queue_pair);
    queue_pair->wr_id = kSend;
    queue_pair->wr_flags = send_flags_;
    ibv_wr_send(queue_pair);
    ibv_wr_set_sge(queue_pair, all.lkey, all.addr, all.length);
    error = ibv_wr_complete(queue_pair);
  } else {
    ibv_send_wr request = {};
    request.wr_id = kSend;
    request.opcode = IBV_WR_SEND;
    request.send_flags = send_flags_;
    if (datagrams()) request.wr.ud = {handle_.get(), remote_qpn_, kQueueKey};
    error = rdma_core::post_send(queue_pairs_[index].get(), all, request);
  }
  if (error != 0) complain_of(error, "Couldn't post send");
  return error == 0;
}

std::optional<size_t> Endpoint::poll(std::span<Completion> completions) {
  if (extended_ != nullptr) return poll_with_timestamps(completions);
  polled_.resize(completions.size());
  const int count = ibv_poll_cq(completions_.get(), static_cast<int>(polled_.size()), polled_.data());
  if (count < 0) {
    complain(verbena::format("poll CQ failed {}", count));
    return std::nullopt;
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    completions[i] = {polled_[i].wr_id, polled_[i].status, polled_[i].qp_num, 0};
  }
  return static_cast<size_t>(count);
}

std::optional<size_t> Endpoint::poll_with_timestamps(std::span<Completion> completions) {
  ibv_poll_cq_attr attributes = {};
  int error = ibv_start_poll(extended_, &attributes);
  if (error == ENOENT) return 0;
  if (error != 0) {
    complain_of(error, verbena::format("poll CQ failed {}", error));
    return std::nullopt;
  }
  size_t count = 0;
  do {
    completions[count++] = {extended_->wr_id, extended_->status, ibv_wc_read_qp_num(extended_),
                            ibv_wc_read_completion_ts(extended_)};
    error = count < completions.size() ? ibv_next_poll(extended_) : ENOENT;
  } while (error == 0);
  ibv_end_poll(extended_);
  if (error == ENOENT) return count;
  complain_of(error, verbena::format("poll CQ failed {}", error));
  return std::nullopt;
}

std::optional<size_t> Endpoint::find(uint32_t qpn) const {
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (queue_pairs_[i]->qp_num == qpn) return i;
  }
  return std::nullopt;
}

void Endpoint::mark_pages() {
  for (size_t at = 0; at < settings_.size; at += page_) buffer_.get()[at + headroom()] = 0;
}

bool Endpoint::load_device_memory() {
  if (!device_memory_) return true;
  const int error = ibv_memcpy_to_dm(device_memory_.get(), 0, buffer_.get(), settings_.size);
  if (error != 0) complain_of(error, "Copy to dm buffer failed");
  return error == 0;
}

std::optional<std::vector<size_t>> Endpoint::wrong_pages() {
  if (device_memory_) {
    if (const int error = ibv_memcpy_from_dm(buffer_.get(), device_memory_.get(), 0, settings_.size);
        error != 0) {
      complain_of(error, "Copy from DM buffer failed");
      return std::nullopt;
    }
  }
  std::vector<size_t> wrong;
  for (size_t at = 0; at < settings_.size; at += page_) {
    if (buffer_.get()[at + headroom()] != 0) wrong.push_back(at / page_);
  }
  return wrong;
}

bool Endpoint::close() {
  acknowledge_events();
  bool done = destroy(handle_, ibv_destroy_ah, "Couldn't destroy AH");
  for (size_t i = 0; i < queue_pairs_.size() && done; ++i) {
    done = destroy(queue_pairs_[i], ibv_destroy_qp, verbena::format("Couldn't destroy {}", name_of(i)));
  }
  return done && destroy(shared_, ibv_destroy_srq, "Couldn't destroy SRQ") &&
         destroy(completions_, ibv_destroy_cq, "Couldn't destroy CQ") &&
         destroy(region_, ibv_dereg_mr, "Couldn't deregister MR") &&
         destroy(device_memory_, free_device_memory, "Couldn't free DM") && close_device();
}

}  // namespace verbena::rdma_core
