// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/datagram_qp.h"

#include <cstdlib>
#include <optional>

#include <fcntl.h>

#include "base/bytes.h"

namespace verbena::rsockets {
namespace {

constexpr int kTimeout = 2000;  // milliseconds

// Returns the index of a GID in a port's table. Prefers the RoCEv2 entry among those with the same GID.
std::optional<uint8_t> gid_index(ibv_context* context, uint8_t port, const ibv_gid& gid) {
  std::optional<uint8_t> found;
  for (uint32_t index = 0; index < 256; ++index) {
    ibv_gid_entry entry;
    if (ibv_query_gid_ex(context, port, index, &entry, 0) != 0) continue;
    if (std::memcmp(&entry.gid, &gid, sizeof gid) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return static_cast<uint8_t>(index);
    if (!found) found = static_cast<uint8_t>(index);
  }
  return found;
}

}  // namespace

Result<std::shared_ptr<PathQuery>> PathQuery::start(Service& service, const Address& from, const Address& to,
                                                    Answer answer) {
  std::shared_ptr<PathQuery> query(new PathQuery(std::move(answer)));
  auto* handler = static_cast<CmHandler*>(query.get());
  if (::rdma_create_id(service.channel(), &query->id_, handler, RDMA_PS_UDP) != 0) return fail(errno);
  Address source = from;
  source.set_port(0);
  Address destination = to;
  if (::rdma_resolve_addr(query->id_, source.get(), destination.get(), kTimeout) != 0) return fail(errno);
  return query;
}

void PathQuery::on_cm_event(const rdma_cm_event& event) {
  Result<UdPath> result = fail(event.status != 0 ? std::abs(event.status) : EHOSTUNREACH);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (::rdma_resolve_route(id_, kTimeout) == 0) return;
      result = fail(errno);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      result = path();
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      break;
    default:
      return;
  }
  if (const Answer answer = std::exchange(answer_, nullptr)) answer(result);
}

Result<UdPath> PathQuery::path() const {
  if (id_->route.num_paths < 1) return fail(EHOSTUNREACH);
  const ibv_sa_path_rec& record = *id_->route.path_rec;
  const auto index = gid_index(id_->verbs, id_->port_num, record.sgid);
  if (!index) return fail(ENODEV);
  UdPath path;
  path.attributes.is_global = 1;  // RoCE always uses global routing
  path.attributes.grh.dgid = record.dgid;
  path.attributes.grh.flow_label = load_be<uint32_t>(&record.flow_label);
  path.attributes.grh.sgid_index = *index;
  path.attributes.grh.hop_limit = record.hop_limit > 1 ? record.hop_limit : 64;
  path.attributes.grh.traffic_class = record.traffic_class;
  path.attributes.dlid = load_be<uint16_t>(&record.dlid);
  path.attributes.sl = record.sl;
  path.attributes.port_num = id_->port_num;
  path.mtu = 128u << record.mtu;
  return path;
}

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

void DatagramQp::take_event(bool again) {
  ibv_cq* queue;
  void* context;
  if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return;
  ibv_ack_cq_events(queue, 1);
  if (again) arm();
}

}  // namespace verbena::rsockets
