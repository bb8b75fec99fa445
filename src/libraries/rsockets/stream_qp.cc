// SPDX-License-Identifier: Apache-2.0
// Creation of a connection's queue pair and buffers, and the connection's state.
#include "libraries/rsockets/stream_qp.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>

namespace verbena::rsockets {
namespace {

constexpr uint32_t kLeastQueue = 16;
// Receives beyond the peer's credits, for messages that cost no credit. A sender that finds no receive posted
// waits for a long time (connections use the longest RNR timer).
constexpr uint32_t kSpareReceives = 8;

}  // namespace

Result<std::unique_ptr<StreamQp>> StreamQp::create(rdma_cm_id* id, const Sizes& wanted) {
  std::unique_ptr<StreamQp> qp(new StreamQp(id));
  if (const auto opened = qp->open(wanted); !opened) return fail(opened.error().code);
  return qp;
}

StreamQp::~StreamQp() {
  if (queue_ && events_ > 0) ibv_ack_cq_events(queue_.get(), events_);
  if (id_->qp != nullptr) ::rdma_destroy_qp(id_);
}

Result<void> StreamQp::open(const Sizes& wanted) {
  sizes_ = wanted;
  ibv_device_attr limits;
  if (const int code = ibv_query_device(id_->verbs, &limits); code != 0) return fail(code);
  const auto most = static_cast<uint32_t>(
      std::clamp<int64_t>(int64_t{std::min(limits.max_qp_wr, limits.max_cqe / 2)} - kSpareReceives,
                          kLeastQueue, kMaxQueueEntries));
  sizes_.send_queue = std::clamp(sizes_.send_queue, kLeastQueue, most);
  sizes_.receive_queue = std::clamp(sizes_.receive_queue, kLeastQueue, most);
  if (auto opened = open_queues(); !opened) return opened;
  if (auto opened = open_buffers(); !opened) return opened;
  return post_receives(sizes_.receive_queue + kSpareReceives);
}

Result<void> StreamQp::open_queues() {
  channel_.reset(ibv_create_comp_channel(id_->verbs));
  if (!channel_) return fail(errno);
  ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  const auto entries = static_cast<int>(sizes_.send_queue + sizes_.receive_queue + kSpareReceives);
  queue_.reset(ibv_create_cq(id_->verbs, entries, this, channel_.get(), 0));
  if (!queue_) return fail(errno);
  auto created = create_queue_pair();
  if (created || sizes_.inline_bytes == 0) return created;
  // Inline data is the only size that a device may reject: retry with the default.
  sizes_.inline_bytes = std::min(sizes_.inline_bytes, Configuration().inline_bytes);
  return create_queue_pair();
}

Result<void> StreamQp::create_queue_pair() {
  ibv_qp_init_attr attributes{};
  attributes.qp_context = this;
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  attributes.cap.max_send_wr = sizes_.send_queue;
  attributes.cap.max_recv_wr = sizes_.receive_queue + kSpareReceives;
  attributes.cap.max_send_sge = 2;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = sizes_.inline_bytes;
  if (::rdma_create_qp(id_, nullptr, &attributes) != 0) return fail(errno);
  sizes_.inline_bytes = attributes.cap.max_inline_data;
  return {};
}

Result<void> StreamQp::open_buffers() {
  const uint32_t half = std::max(sizes_.receive_bytes / 2, 1u);
  sizes_.receive_bytes = 2 * half;
  sizes_.send_bytes = std::max(sizes_.send_bytes, 2 * kSendLowWater);
  constexpr int kPeersToo = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const size_t send_bytes = sizes_.send_bytes + kControlSlots * BufferAddress::kBytes;
  const size_t table_bytes = GrantTable::kBytes + sizes_.iomap_entries * IomapEntry::kBytes;
  ibv_pd* domain = id_->qp->pd;
  if (auto opened = send_memory_.open(domain, send_bytes, IBV_ACCESS_LOCAL_WRITE); !opened) return opened;
  if (auto opened = receive_memory_.open(domain, sizes_.receive_bytes, kPeersToo); !opened) return opened;
  if (auto opened = table_memory_.open(domain, table_bytes, kPeersToo); !opened) return opened;
  send_window_ = std::make_unique<SendWindow>(sizes_.send_queue - kControlSlots, sizes_.send_bytes);
  receive_window_ = std::make_unique<ReceiveWindow>(sizes_.receive_queue, half);
  ring_ = std::make_unique<SendRing>(sizes_.send_bytes);
  grants_ = std::make_unique<GrantTable>(table_memory_.data());
  iomaps_ = std::make_unique<IomapTable>(table_memory_.data() + GrantTable::kBytes, sizes_.iomap_entries);
  return {};
}

ConnectData StreamQp::introduction() const {
  ConnectData data;
  data.credits = static_cast<uint16_t>(sizes_.receive_queue);
  data.iomap_entries = sizes_.iomap_entries;
  data.table = {table_memory_.address(), table_memory_.rkey(), kTableEntries};
  data.buffer = {receive_memory_.address(), receive_memory_.rkey(), receive_window_->ring_bytes() / 2};
  return data;
}

void StreamQp::meet(const ConnectData& peer) {
  const std::lock_guard lock(poll_mutex_);
  peer_ = peer;
  send_window_->set_limit(peer.credits);
  if (peer.buffer.length > 0) (void)send_window_->grant(peer.buffer);
  flags_.store(kUp | kReadable | kWritable, std::memory_order_release);
}

// The peer may go on sending. One call of poll() handles at most the receives that were posted before it.
void StreamQp::end(TimePoint deadline) {
  const std::lock_guard lock(poll_mutex_);
  do {
    (void)poll();
  } while (is_up() && MonotonicClock::now() < deadline);
  flags_.store(0, std::memory_order_release);
}

void StreamQp::break_off(int error) {
  // SO_ERROR reports the first error.
  if (is_up() && error != 0) {
    int none = 0;
    error_.compare_exchange_strong(none, error, std::memory_order_acq_rel);
    broken_.store(true, std::memory_order_release);
  }
  flags_.store(0, std::memory_order_release);
}

Interest StreamQp::look(Interest interest) const {
  Interest ready = 0;
  const bool up = is_up();
  const bool readable = is_readable();
  const bool has_data = receive_window_->available() > 0;
  if (!readable || has_data) ready |= POLLIN;
  if (!is_writable() || send_window_->may_send()) ready |= POLLOUT;
  if (!up || has_control_room()) ready |= kControlRoom;
  if (!up || (send_window_->all_done() && controls_posted_.load() == controls_done_.load()))
    ready |= kFlushed;
  ready &= interest;
  // Reports POLLHUP only after earlier data have been read, because programs stop reading at POLLHUP.
  if (is_broken()) ready |= POLLERR;
  if (!up && !has_data) ready |= POLLHUP;
  return ready;
}

// Arms even if armed already: the call tells the device that no thread polls any more.
void StreamQp::arm() {
  const std::lock_guard lock(poll_mutex_);
  ibv_req_notify_cq(queue_.get(), 0);
}

void StreamQp::take_event(bool again) {
  // Acknowledges in batches, because each acknowledgement takes a lock.
  constexpr uint32_t kAcknowledgeAt = 256;
  const std::lock_guard lock(poll_mutex_);
  ibv_cq* queue;
  void* context;
  if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return;
  if (++events_ == kAcknowledgeAt) {
    ibv_ack_cq_events(queue_.get(), events_);
    events_ = 0;
  }
  if (again) ibv_req_notify_cq(queue_.get(), 0);
}

}  // namespace verbena::rsockets
