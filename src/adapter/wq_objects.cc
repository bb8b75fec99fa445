// SPDX-License-Identifier: Apache-2.0
// Receive queues outside of QPs, and tables of them.
#include <algorithm>
#include <bit>
#include <mutex>

#include "adapter/limits.h"
#include "adapter/receive_posting.h"
#include "adapter/software_context.h"

namespace verbena::adapter {
namespace {

constexpr uint32_t kFlags = IBV_WQ_FLAGS_CVLAN_STRIPPING;

int post_recv(ibv_wq* abi, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Wq& wq = Wq::of(abi);
  transport::ReceiveWorkQueue& queue = *wq.queue;
  Posted posted;
  bool flush = false;
  {
    const std::lock_guard guard(queue.lock());
    if (queue.state() == IBV_WQS_RESET) {
      posted.error = EINVAL;
      posted.failed = wr;
    } else {
      posted = fill_receives(queue.queue(), wq.max_sge, wr);
      queue.queue().publish(posted.count);
    }
    flush = queue.state() == IBV_WQS_ERR;
  }
  if (posted.error != 0 && bad_wr != nullptr) *bad_wr = posted.failed;
  if (flush) wq.shard.exclusively([&] { queue.flush(); });
  return posted.error;
}

// The state machine of ibv_modify_wq(3): from RESET to RDY, from RDY and ERR to anything but that RDY is not
// reached from ERR.
bool may_go(ibv_wq_state from, ibv_wq_state to) {
  if (to == IBV_WQS_RESET) return true;
  if (to == IBV_WQS_RDY) return from != IBV_WQS_ERR;
  return to == IBV_WQS_ERR && from != IBV_WQS_RESET;
}

}  // namespace

Wq::Wq(SoftwareContext& maker)
    : ibv_wq{},
      owner(maker),
      shard(maker.shard()),
      account(mutex, cond),
      async_events(kWqEvents, {.element = {.wq = this}, .event_type = {}}, &async_events_taken) {}

void Wq::on_work_queue_fatal() {
  state = IBV_WQS_ERR;
  async_events.post(IBV_EVENT_WQ_FATAL, owner.events());
}

Result<ibv_wq*> SoftwareContext::create_wq(ibv_wq_init_attr* attr) {
  if (is_gone()) return fail(EIO);
  if ((attr->comp_mask & ~uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0) return fail(EOPNOTSUPP);
  const uint32_t flags = (attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 ? attr->create_flags : 0;
  if ((flags & ~kFlags) != 0) return fail(EOPNOTSUPP);
  if (attr->wq_type != IBV_WQT_RQ || attr->pd == nullptr || attr->cq == nullptr) return fail(EINVAL);
  if (attr->pd->context != &abi().context || attr->cq->context != &abi().context) return fail(EINVAL);
  if (attr->max_wr == 0 || attr->max_wr > kMaxQpWr || attr->max_sge > kMaxSge) return fail(EINVAL);

  const uint32_t max_wr = std::bit_ceil(attr->max_wr);
  const uint32_t max_sge = std::max(attr->max_sge, 1u);
  auto ring = queues::RecvQueue::create(max_wr, max_sge * static_cast<uint32_t>(sizeof(ibv_sge)));
  if (!ring) return tl::unexpected(ring.error());
  auto wq = std::make_unique<Wq>(*this);
  // Numbered among the QPs: completions of both name their queue by that number.
  auto number = shard().exclusively([&] { return shard().reserve_qpn(); });
  if (!number) return tl::unexpected(number.error());
  const transport::FrameReceiptConfig config{Pd::of(attr->pd).id, number->value(),
                                             (flags & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0, &engine_->keys(),
                                             Cq::of(attr->cq).queue.get()};
  wq->queue = std::make_unique<transport::ReceiveWorkQueue>(config, std::move(*ring), wq.get());
  wq->max_sge = max_sge;
  wq->context = &abi().context;
  wq->wq_context = attr->wq_context;
  wq->pd = attr->pd;
  wq->cq = attr->cq;
  wq->wq_num = number->value();
  wq->handle = next_handle();
  wq->state = IBV_WQS_RESET;
  wq->wq_type = attr->wq_type;
  wq->post_recv = post_recv;
  attr->max_wr = max_wr;
  attr->max_sge = max_sge;
  ++Pd::of(attr->pd).users;
  ++Cq::of(attr->cq).users;
  const std::lock_guard guard(objects_mutex_);
  wqs_.push_back(*wq);
  return wq.release();
}

int SoftwareContext::modify_wq(ibv_wq* abi_wq, const ibv_wq_attr* attr) {
  if (is_gone()) return EIO;
  constexpr uint32_t kKnown = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  if ((attr->attr_mask & ~kKnown) != 0) return EINVAL;
  Wq& wq = Wq::of(abi_wq);
  const std::lock_guard modifying(wq.modifying);
  return wq.shard.exclusively([&]() -> int {
    const ibv_wq_state from = wq.queue->state();
    if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 && attr->curr_wq_state != from) return EINVAL;
    const bool moves = (attr->attr_mask & IBV_WQ_ATTR_STATE) != 0;
    if (moves && !may_go(from, attr->wq_state)) return EINVAL;
    const bool sets_flags = (attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0;
    if (sets_flags && (attr->flags_mask & ~kFlags) != 0) return EOPNOTSUPP;

    if (sets_flags && (attr->flags_mask & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0)
      wq.queue->strip_vlan((attr->flags & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0);
    if (!moves) return 0;
    if (attr->wq_state != from || attr->wq_state == IBV_WQS_RESET) wq.queue->enter(attr->wq_state);
    if (attr->wq_state == IBV_WQS_RESET) Cq::of(wq.cq).queue->remove_entries_of(wq.wq_num);
    abi_wq->state = attr->wq_state;
    return 0;
  });
}

void SoftwareContext::withdraw_events(Wq& wq) {
  if (!engine_->inherited()) wq.async_events.withdraw(events());
}

void SoftwareContext::retire(Wq& wq) {
  // All under the lock: from the moment the number is given back another may get it.
  wq.shard.exclusively([&] {
    Cq::of(wq.cq).queue->remove_entries_of(wq.wq_num);
    wq.shard.release_qpn(roce::Qpn(wq.wq_num));
  });
  withdraw_events(wq);
}

int SoftwareContext::destroy_wq(ibv_wq* abi_wq) {
  Wq& wq = Wq::of(abi_wq);
  if (wq.users.load() != 0) return EBUSY;
  retire(wq);
  wq.account.await(wq.events_completed, wq.async_events_taken);
  --Cq::of(wq.cq).users;
  --Pd::of(wq.pd).users;
  const std::lock_guard guard(objects_mutex_);
  delete &wq;
  return 0;
}

Result<ibv_rwq_ind_table*> SoftwareContext::create_rwq_ind_table(const ibv_rwq_ind_table_init_attr* attr) {
  if (is_gone()) return fail(EIO);
  if (attr->comp_mask != 0) return fail(EOPNOTSUPP);
  if (attr->log_ind_tbl_size > kMaxLogRwqTable || attr->ind_tbl == nullptr) return fail(EINVAL);
  auto table = std::make_unique<RwqIndTable>();
  for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; ++i) {
    ibv_wq* wq = attr->ind_tbl[i];
    if (wq == nullptr || wq->context != &abi().context) return fail(EINVAL);
    table->queues.push_back(&Wq::of(wq));
  }
  for (Wq* wq : table->queues) ++wq->users;
  table->context = &abi().context;
  table->ind_tbl_handle = static_cast<int>(next_handle());
  table->ind_tbl_num = table->ind_tbl_handle;
  const std::lock_guard guard(objects_mutex_);
  rwq_tables_.push_back(*table);
  return table.release();
}

int SoftwareContext::destroy_rwq_ind_table(ibv_rwq_ind_table* abi_table) {
  RwqIndTable& table = RwqIndTable::of(abi_table);
  if (table.users.load() != 0) return EBUSY;
  for (Wq* wq : table.queues) --wq->users;
  const std::lock_guard guard(objects_mutex_);
  delete &table;
  return 0;
}

}  // namespace verbena::adapter
