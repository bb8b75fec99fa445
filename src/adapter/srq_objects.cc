// SPDX-License-Identifier: Apache-2.0
// Shared receive queues.
#include <algorithm>
#include <bit>

#include "adapter/limits.h"
#include "adapter/receive_posting.h"
#include "adapter/software_context.h"

namespace verbena::adapter {
namespace {

constexpr uint32_t kKnownInitMask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                                    IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;

int check_capacities(const ibv_srq_attr& attr) {
  return attr.max_wr >= 1 && attr.max_wr <= kMaxSrqWr && attr.max_sge <= static_cast<uint32_t>(kMaxSge)
             ? 0
             : EINVAL;
}

}  // namespace

Srq::Srq(SoftwareContext& maker)
    : ibv_srq{},
      owner(maker),
      account(mutex, cond),
      async_events(kSrqEvents, {.element = {.srq = this}, .event_type = {}}, &async_events_taken) {}

void Srq::on_limit_reached() {
  async_events.post(IBV_EVENT_SRQ_LIMIT_REACHED, owner.events());
}

Result<ibv_srq*> SoftwareContext::create_srq(ibv_srq_init_attr_ex* attr) {
  if (is_gone()) return fail(EIO);
  if ((attr->comp_mask & ~kKnownInitMask) != 0) return fail(EOPNOTSUPP);
  const ibv_srq_type type = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC && type != IBV_SRQT_TM) return fail(EOPNOTSUPP);
  const bool xrc = type == IBV_SRQT_XRC;
  const bool tag_matching = type == IBV_SRQT_TM;
  const auto ours = [&](const auto* object) {
    return object != nullptr && object->context == &abi().context;
  };
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || !ours(attr->pd)) return fail(EINVAL);
  if (xrc && ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || !ours(attr->xrcd))) return fail(EINVAL);
  if ((xrc || tag_matching) && ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || !ours(attr->cq))) {
    return fail(EINVAL);
  }
  if (tag_matching && ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TM) == 0 || attr->tm_cap.max_num_tags < 1 ||
                       attr->tm_cap.max_num_tags > kMaxTags || attr->tm_cap.max_ops > kMaxTagOperations)) {
    return fail(EINVAL);
  }
  if (const int error = check_capacities(attr->attr); error != 0) return fail(error);

  auto srq = std::make_unique<Srq>(*this);
  queues::SharedReceiveQueue::Config config;
  config.requests = std::bit_ceil(attr->attr.max_wr);
  config.sges = std::max(attr->attr.max_sge, 1u);
  config.pd = Pd::of(attr->pd).id;
  config.listener = srq.get();
  config.memory = Pd::of(attr->pd).memory.get();
  if (xrc) {
    auto number = shard().exclusively([&] { return shard().srqs().reserve(); });
    if (!number) return tl::unexpected(number.error());
    config.number = *number;
    config.xrc_domain = Xrcd::of(attr->xrcd).domain->id();
  }
  if (xrc || tag_matching) config.cq = Cq::of(attr->cq).queue.get();
  if (tag_matching) config.tags = attr->tm_cap.max_num_tags;
  auto queue = queues::SharedReceiveQueue::create(config);
  if (!queue) {
    if (xrc) shard().exclusively([&] { shard().srqs().remove(config.number); });
    return tl::unexpected(queue.error());
  }
  srq->queue = std::move(*queue);
  srq->context = &abi().context;
  srq->srq_context = attr->srq_context;
  srq->pd = attr->pd;
  srq->handle = next_handle();
  srq->type = type;
  ++Pd::of(attr->pd).users;
  if (config.cq != nullptr) {
    srq->cq = attr->cq;
    ++Cq::of(srq->cq).users;
  }
  if (xrc) {
    srq->xrcd = attr->xrcd;
    ++Xrcd::of(srq->xrcd).users;
    shard().exclusively([&] { shard().srqs().add(*srq->queue); });
  }
  attr->attr.max_wr = srq->queue->capacity();
  attr->attr.max_sge = srq->queue->sges();
  const std::lock_guard guard(objects_mutex_);
  srqs_.push_back(*srq);
  return srq.release();
}

int SoftwareContext::modify_srq(ibv_srq* abi_srq, ibv_srq_attr* attr, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  queues::SharedReceiveQueue& queue = *Srq::of(abi_srq).queue;
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  const bool arms = (mask & IBV_SRQ_LIMIT) != 0;
  queues::RecvQueue ring;
  if (resizes) {
    if (attr->max_wr < 1 || attr->max_wr > kMaxSrqWr) return EINVAL;
    // Made and freed under no lock: the application's allocator may be asked.
    auto made = queue.make_ring(std::bit_ceil(attr->max_wr));
    if (!made) return made.error().code;
    ring = std::move(*made);
  }
  // All of it or nothing; and no limit is above what the queue can hold (as in the kernel's rxe).
  const std::lock_guard posting(queue.lock());
  const uint32_t capacity = resizes ? ring.capacity() : queue.capacity();
  if ((arms ? attr->srq_limit : queue.limit()) > capacity) return EINVAL;
  if (resizes) {
    if (const auto exchanged = queue.exchange(ring); !exchanged) return exchanged.error().code;
  }
  if (arms) queue.arm(attr->srq_limit);
  return 0;
}

int SoftwareContext::query_srq(ibv_srq* abi_srq, ibv_srq_attr* attr) {
  const queues::SharedReceiveQueue& queue = *Srq::of(abi_srq).queue;
  attr->max_wr = queue.capacity();
  attr->max_sge = queue.sges();
  attr->srq_limit = queue.limit();
  return 0;
}

int SoftwareContext::get_srq_num(ibv_srq* srq, uint32_t* number) {
  if (Srq::of(srq).type != IBV_SRQT_XRC) return EINVAL;
  *number = Srq::of(srq).queue->number();
  return 0;
}

// Nothing is taken from it any more, nothing of it is told any more.
void SoftwareContext::retire(Srq& srq) {
  if (srq.type == IBV_SRQT_XRC) {
    shard().exclusively([&] {
      shard().srqs().remove(srq.queue->number());
      shard().for_each([&](transport::QueuePair& qp) { qp.receives().forget(*srq.queue); });
      engine_->domain_peers().forget(*srq.queue);
    });
  }
  if (!engine_->inherited()) srq.async_events.withdraw(events());
}

int SoftwareContext::destroy_srq(ibv_srq* abi_srq) {
  Srq& srq = Srq::of(abi_srq);
  if (srq.users.load() != 0) return EBUSY;
  retire(srq);
  srq.account.await(srq.events_completed, srq.async_events_taken);
  if (srq.cq != nullptr) --Cq::of(srq.cq).users;
  if (srq.xrcd != nullptr) --Xrcd::of(srq.xrcd).users;
  Pd& pd = Pd::of(srq.pd);
  {
    const std::lock_guard guard(objects_mutex_);
    srq.owned.unlink();
  }
  delete &srq;  // may call the application's allocator, so under no lock
  --pd.users;
  return 0;
}

int post_srq_recv(ibv_srq* abi, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  queues::SharedReceiveQueue& queue = *Srq::of(abi).queue;
  const std::lock_guard guard(queue.lock());
  const Posted posted = fill_receives(queue.ring(), queue.sges(), wr);
  queue.ring().publish(posted.count);
  if (posted.error != 0 && bad_wr != nullptr) *bad_wr = posted.failed;
  return posted.error;
}

}  // namespace verbena::adapter
