// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/datagram_qp.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include <fcntl.h>

namespace verbena::rsockets {
namespace {

constexpr uint64_t kReceiveBit = uint64_t{1} << 63;
constexpr uint32_t kGrhBytes = 40;

// Returns the number of queue entries for which the buffer size that the application wants has room.
uint32_t entries(uint32_t queue, uint32_t bytes, uint32_t most) {
  return std::clamp(std::min(queue, bytes / static_cast<uint32_t>(kDatagramBytes)), 1u, most);
}

}  // namespace

Result<std::unique_ptr<DatagramQp>> DatagramQp::create(Service& service, const Address& local,
                                                       const Sizes& sizes) {
  std::unique_ptr<DatagramQp> qp(new DatagramQp(local));
  if (auto opened = qp->open(service, sizes); !opened) return fail(opened.error().code);
  return qp;
}

DatagramQp::~DatagramQp() {
  if (id_ == nullptr) return;
  if (id_->qp != nullptr) ::rdma_destroy_qp(id_);
  ::rdma_destroy_id(id_);
}

Result<void> DatagramQp::open(Service& service, const Sizes& sizes) {
  auto* handler = static_cast<CmHandler*>(this);
  if (::rdma_create_id(service.channel(), &id_, handler, RDMA_PS_UDP) != 0) return fail(errno);
  // The UDP socket owns the port; peers address us by the queue pair number.
  Address address = local();
  address.set_port(0);
  if (::rdma_bind_addr(id_, address.get()) != 0) return fail(errno);
  if (id_->verbs == nullptr) {
    if (auto found = find_loopback_device(service, address); !found) return found;
  }
  ibv_port_attr port;
  if (const int code = ibv_query_port(id_->verbs, id_->port_num, &port); code != 0) return fail(code);
  mtu_ = 128u << port.active_mtu;
  if (auto opened = open_queues(sizes); !opened) return opened;
  ibv_pd* pd = domain();
  if (auto opened = send_memory_.open(pd, sends_ * kDatagramBytes, IBV_ACCESS_LOCAL_WRITE); !opened) {
    return opened;
  }
  const size_t receive_bytes = receives_ * kDatagramBytes + kGrhBytes;
  if (auto opened = receive_memory_.open(pd, receive_bytes, IBV_ACCESS_LOCAL_WRITE); !opened) return opened;
  for (uint32_t slot = 0; slot < sends_; ++slot) slots_.push_back(slot);
  free_slots_.store(sends_, std::memory_order_release);
  for (uint32_t slot = 0; slot < receives_; ++slot) give_back(slot);
  arm();
  return {};
}

// Finds the device for 127.0.0.1 or ::1, which belong to no device: resolves the address. The identifier
// leaves the service's channel meanwhile, so that this call waits for the result.
Result<void> DatagramQp::find_loopback_device(Service& service, Address address) {
  constexpr int kTimeout = 2000;  // milliseconds
  if (::rdma_migrate_id(id_, nullptr) != 0) return fail(errno);
  if (::rdma_resolve_addr(id_, nullptr, address.get(), kTimeout) != 0) return fail(errno);
  if (::rdma_migrate_id(id_, service.channel()) != 0) return fail(errno);
  return id_->verbs != nullptr ? Result<void>() : fail(ENODEV);
}

Result<void> DatagramQp::open_queues(const Sizes& sizes) {
  ibv_device_attr limits;
  if (const int code = ibv_query_device(id_->verbs, &limits); code != 0) return fail(code);
  const auto most = static_cast<uint32_t>(std::min(limits.max_qp_wr, limits.max_cqe / 2));
  sends_ = entries(sizes.send_queue, sizes.send_bytes, most);
  receives_ = entries(sizes.receive_queue, sizes.receive_bytes, most);
  channel_.reset(ibv_create_comp_channel(id_->verbs));
  if (!channel_) return fail(errno);
  ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  queue_.reset(ibv_create_cq(id_->verbs, static_cast<int>(sends_ + receives_), this, channel_.get(), 0));
  if (!queue_) return fail(errno);
  ibv_qp_init_attr attributes{};
  attributes.qp_context = this;
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.qp_type = IBV_QPT_UD;
  attributes.sq_sig_all = 1;
  attributes.cap.max_send_wr = sends_;
  attributes.cap.max_recv_wr = receives_;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 2;
  attributes.cap.max_inline_data = sizes.inline_bytes;
  if (::rdma_create_qp(id_, nullptr, &attributes) != 0) return fail(errno);
  inline_bytes_ = attributes.cap.max_inline_data;
  return {};
}

uint32_t DatagramQp::take_slot() {
  const std::lock_guard lock(slots_lock_);
  const uint32_t slot = slots_.back();
  slots_.pop_back();
  free_slots_.store(static_cast<uint32_t>(slots_.size()), std::memory_order_release);
  return slot;
}

void DatagramQp::free_slot(uint32_t slot) {
  const std::lock_guard lock(slots_lock_);
  slots_.push_back(slot);
  free_slots_.store(static_cast<uint32_t>(slots_.size()), std::memory_order_release);
}

Result<void> DatagramQp::send(Buffers from, ibv_ah* to, uint32_t number) {
  const uint32_t slot = take_slot();
  const size_t offset = slot * kDatagramBytes;
  std::byte* place = send_memory_.data() + offset;
  const size_t header = header_.encode(place);
  const size_t payload = from.size();
  from.read(place + header, payload);
  ibv_sge piece{send_memory_.address() + offset, static_cast<uint32_t>(header + payload),
                send_memory_.lkey()};
  ibv_send_wr request{};
  request.wr_id = slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = piece.length <= inline_bytes_ ? IBV_SEND_INLINE : 0;
  request.wr.ud.ah = to;
  request.wr.ud.remote_qpn = number;
  request.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  ibv_send_wr* bad;
  if (const int code = ibv_post_send(id_->qp, &request, &bad); code != 0) {
    free_slot(slot);
    return fail(code);
  }
  return {};
}

void DatagramQp::give_back(uint32_t slot) {
  ibv_sge pieces[] = {
      {receive_memory_.address() + receives_ * kDatagramBytes, kGrhBytes, receive_memory_.lkey()},
      {receive_memory_.address() + slot * kDatagramBytes, kDatagramBytes, receive_memory_.lkey()}};
  ibv_recv_wr request{};
  request.wr_id = kReceiveBit | slot;
  request.sg_list = pieces;
  request.num_sge = 2;
  ibv_recv_wr* bad;
  (void)ibv_post_recv(id_->qp, &request, &bad);  // fails only if the queue pair has failed
}

void DatagramQp::poll(const Arrived& arrived) {
  constexpr int kBatch = 16;
  // Limits the loop to one queue's length, because a slot that is given back here may be filled again at
  // once. Later completions cause the event that was armed before.
  int left = queue_->cqe;
  for (int count = kBatch; count == kBatch && left > 0; left -= count) {
    ibv_wc completions[kBatch];
    count = ibv_poll_cq(queue_.get(), kBatch, completions);
    for (int i = 0; i < count; ++i) {
      if ((completions[i].wr_id & kReceiveBit) == 0) {
        free_slot(static_cast<uint32_t>(completions[i].wr_id));
      } else if (completions[i].status == IBV_WC_SUCCESS) {
        receive(completions[i], arrived);
      }
    }
  }
}

void DatagramQp::receive(const ibv_wc& completion, const Arrived& arrived) {
  const auto slot = static_cast<uint32_t>(completion.wr_id);
  const size_t length = completion.byte_len > kGrhBytes ? completion.byte_len - kGrhBytes : 0;
  const ConstBytes all(receive_memory_.data() + slot * kDatagramBytes, std::min(length, kDatagramBytes));
  const auto header = DatagramHeader::decode(all);
  // Drops datagrams of another address family: the program expects none, and has no room for their addresses.
  if (header && header->source.family() == local().family()) {
    arrived(slot, *header, all.subspan(header->size()));
  } else {
    give_back(slot);
  }
}

void DatagramQp::arm() {
  ibv_req_notify_cq(queue_.get(), 0);
}

void DatagramQp::take_event(bool again) {
  ibv_cq* queue;
  void* context;
  if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return;
  ibv_ack_cq_events(queue, 1);
  if (again) arm();
}

}  // namespace verbena::rsockets
