// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "adapter/objects/data_path.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/software_context.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/transport/queue_pair.h"
#include "base/failed_call.h"

namespace verbena::adapter {

namespace {

constexpr uint32_t kKnownInitMask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                                    IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;

int check_requests(uint32_t max_wr) {
  if (max_wr == 0) return because(EINVAL, "max_wr is 0");
  if (max_wr > uint32_t{kMaxSrqWr})
    return because(EINVAL, "max_wr {} exceeds max_srq_wr {}", max_wr, kMaxSrqWr);
  return 0;
}

int check_capacities(const ibv_srq_attr& attr) {
  if (const int error = check_requests(attr.max_wr); error != 0) return error;
  if (attr.max_sge > uint32_t{kMaxSge})
    return because(EINVAL, "max_sge {} exceeds max_srq_sge {}", attr.max_sge, kMaxSge);
  return 0;
}

struct Outcome {
  int error = 0;  // errno value if the request could not be posted
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_TM_SYNC;
};

Outcome execute(queues::TagList& tags, ibv_ops_wr& wr) {
  if ((wr.flags & IBV_OPS_TM_SYNC) != 0) tags.synchronize(wr.tm.unexpected_cnt);
  switch (wr.opcode) {
    case IBV_WR_TAG_ADD: {
      const auto& add = wr.tm.add;
      if (add.num_sge < 0 || add.num_sge > kMaxSge)
        return {.error = because(EINVAL, "tm.add.num_sge {} is not within 0 to {}", add.num_sge, kMaxSge)};
      const auto handle =
          tags.add({add.tag, add.mask, add.recv_wr_id, {add.sg_list, static_cast<size_t>(add.num_sge)}});
      if (!handle) return {.error = handle.error().code};
      wr.tm.handle = *handle;
      return {.opcode = IBV_WC_TM_ADD};
    }
    case IBV_WR_TAG_DEL:
      // A message may have taken the buffer meanwhile.
      return {.status = tags.remove(wr.tm.handle) ? IBV_WC_SUCCESS : IBV_WC_TM_ERR, .opcode = IBV_WC_TM_DEL};
    case IBV_WR_TAG_SYNC:
      return {};
    default:
      return {.error = because(EINVAL, "there is no tag operation {}", static_cast<int>(wr.opcode))};
  }
}

}  // namespace

Srq::Srq(OpenDevice& device)
    : VerbsObject(device),
      account(mutex, cond),
      async_events(kSrqEvents, {.element = {.srq = this}, .event_type = {}}, &account, &events_completed) {}

static Result<ibv_srq_type> check(const ibv_srq_init_attr_ex& attr, const OpenDevice& device) {
  if ((attr.comp_mask & ~kKnownInitMask) != 0) return fail(EOPNOTSUPP);
  const auto has = [&](ibv_srq_init_attr_mask field) { return (attr.comp_mask & field) != 0; };
  const ibv_srq_type type = has(IBV_SRQ_INIT_ATTR_TYPE) ? attr.srq_type : IBV_SRQT_BASIC;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC && type != IBV_SRQT_TM)
    return fail(because(EOPNOTSUPP, "there is no srq_type {}", static_cast<int>(type)));
  if (!has(IBV_SRQ_INIT_ATTR_PD) || !device.made(attr.pd))
    return fail(because(EINVAL, "pd is missing, or none of this ibv_context"));
  if (type == IBV_SRQT_XRC && (!has(IBV_SRQ_INIT_ATTR_XRCD) || !device.made(attr.xrcd)))
    return fail(because(EINVAL, "xrcd is missing, or none of this ibv_context"));
  if (type != IBV_SRQT_BASIC && (!has(IBV_SRQ_INIT_ATTR_CQ) || !device.made(attr.cq)))
    return fail(because(EINVAL, "cq is missing, or none of this ibv_context"));
  if (type == IBV_SRQT_TM) {
    const ibv_tm_cap& tm = attr.tm_cap;
    if (!has(IBV_SRQ_INIT_ATTR_TM))
      return fail(because(EINVAL, "comp_mask {:#x} lacks IBV_SRQ_INIT_ATTR_TM", attr.comp_mask));
    if (tm.max_num_tags < 1 || tm.max_num_tags > kMaxTags)
      return fail(because(EINVAL, "tm_cap.max_num_tags {} is not within 1 to {}", tm.max_num_tags, kMaxTags));
    if (tm.max_ops > kMaxTagOperations)
      return fail(because(EINVAL, "tm_cap.max_ops {} exceeds {}", tm.max_ops, kMaxTagOperations));
  }
  if (const int error = check_capacities(attr.attr); error != 0) return fail(error);
  return type;
}

// Creates the receive queue of `srq`. REQUIRES: srq.type is the result of check(attr)
static Result<std::unique_ptr<queues::SharedReceiveQueue>> make_queue(const ibv_srq_init_attr_ex& attr,
                                                                      Srq& srq) {
  engine::Engine& engine = *srq.owner.engine();
  const bool xrc = srq.type == IBV_SRQT_XRC;
  queues::SharedReceiveQueue::Config config;
  config.requests = std::bit_ceil(attr.attr.max_wr);
  config.sges = std::max(attr.attr.max_sge, 1u);
  config.pd = Pd::of(attr.pd).id;
  config.listener = &srq;
  config.memory = Pd::of(attr.pd).memory.get();
  if (srq.type != IBV_SRQT_BASIC) config.cq = Cq::of(attr.cq).queue.get();
  if (srq.type == IBV_SRQT_TM) config.tags = attr.tm_cap.max_num_tags;
  if (xrc) {
    auto number = engine.home().exclusively([&] { return engine.xrc_queues().reserve(); });
    if (!number) return tl::unexpected(number.error());
    config.number = *number;
    config.xrc_domain = Xrcd::of(attr.xrcd).domain->id();
  }
  auto queue = queues::SharedReceiveQueue::create(config);
  if (!queue && xrc) engine.home().exclusively([&] { engine.xrc_queues().remove(config.number); });
  return queue;
}

Result<ibv_srq*> SoftwareContext::create_srq(ibv_srq_init_attr_ex* init) {
  ibv_srq_init_attr_ex& attr = *init;
  if (device_->is_gone()) return fail(EIO);
  const auto type = check(attr, *device_);
  if (!type) return tl::unexpected(type.error());
  auto made = shared_queues_.make(*device_);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Srq> srq = std::move(*made);
  srq->type = *type;
  auto queue = make_queue(attr, *srq);
  if (!queue) return tl::unexpected(queue.error());
  srq->queue = std::move(*queue);
  srq->srq_context = attr.srq_context;
  srq->pd = attr.pd;
  srq->handle = device_->next_handle();
  srq->domain = &Pd::of(attr.pd);
  ++Pd::of(attr.pd).users;
  if (*type != IBV_SRQT_BASIC) {
    srq->cq = attr.cq;
    ++Cq::of(srq->cq).users;
    Cq::of(srq->cq).joined_by(device_->home());
  }
  if (*type == IBV_SRQT_XRC) {
    srq->xrcd = attr.xrcd;
    ++Xrcd::of(srq->xrcd).users;
    device_->home().exclusively([&] { device_->engine()->xrc_queues().add(*srq->queue); });
  }
  srq->shown =
      device_->show(protocol::ObjectKind::kSrq, {Pd::of(attr.pd).state->shown.number(),
                                                 srq->cq != nullptr ? Cq::of(srq->cq).shown.number() : 0,
                                                 *type, *type == IBV_SRQT_XRC ? srq->queue->number() : 0});
  attr.attr.max_wr = srq->queue->capacity();
  attr.attr.max_sge = srq->queue->sges();
  return shared_queues_.add(std::move(srq));
}

int SoftwareContext::modify_srq(ibv_srq* abi_srq, ibv_srq_attr* attr, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
    return because(EINVAL, "srq_attr_mask {:#x} has bits that are unknown here", mask);
  queues::SharedReceiveQueue& queue = *Srq::of(abi_srq).queue;
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  const bool arms = (mask & IBV_SRQ_LIMIT) != 0;
  queues::RecvQueue ring;
  if (resizes) {
    if (const int error = check_requests(attr->max_wr); error != 0) return error;
    // Allocated and freed under no lock: this may call the application's allocator.
    auto made = queue.make_ring(std::bit_ceil(attr->max_wr));
    if (!made) return made.error().code;
    ring = std::move(*made);
  }
  // Changes all attributes or none. No limit is above the capacity of the queue, as in the kernel's rxe.
  const std::lock_guard posting(queue.lock());
  const uint32_t capacity = resizes ? ring.capacity() : queue.capacity();
  if ((arms ? attr->srq_limit : queue.limit()) > capacity)
    return because(EINVAL, "srq_limit is {}, the queue has room for {}",
                   arms ? attr->srq_limit : queue.limit(), capacity);
  if (resizes) {
    if (const auto exchanged = queue.exchange(ring); !exchanged)
      return because(exchanged.error().code, "max_wr {} is less than the number of requests that are posted",
                     attr->max_wr);
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
  if (Srq::of(srq).type != IBV_SRQT_XRC)
    return because(EINVAL, "only shared receive queues for XRC have numbers");
  *number = Srq::of(srq).queue->number();
  return 0;
}

void Srq::retire() {
  if (type == IBV_SRQT_XRC) {
    engine::Shard& shard = owner.home();
    shard.exclusively([&] {
      owner.engine()->xrc_queues().remove(queue->number());
      shard.for_each([&](transport::QueuePair& qp) { qp.receives().forget(*queue); });
      owner.engine()->domain_peers().forget(*queue);
    });
  }
  if (!owner.inherited()) async_events.withdraw(owner.events());
}

int SoftwareContext::destroy_srq(ibv_srq* abi_srq) {
  Srq& srq = Srq::of(abi_srq);
  if (srq.users.load() != 0) {
    because(EBUSY, "{} queue pairs use it", srq.users.load());
    return log_level() < LogLevel::kError ? EBUSY : say_busy(abi_srq, queue_pairs_.users_of(&srq));
  }
  srq.retire();
  srq.async_events.await("ibv_destroy_srq", abi_srq);
  if (srq.cq != nullptr) {
    Cq::of(srq.cq).left_by(device_->home());
    --Cq::of(srq.cq).users;
  }
  if (srq.xrcd != nullptr) --Xrcd::of(srq.xrcd).users;
  Pd& pd = *srq.domain;
  shared_queues_.destroy(srq);
  --pd.users;
  return 0;
}

// Changes the list of tagged buffers of a shared receive queue with tag matching: ibv_post_srq_ops(3).
int SoftwareContext::post_srq_ops(ibv_srq* abi_srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  Srq& srq = Srq::of(abi_srq);
  if (srq.type != IBV_SRQT_TM) {
    *bad_wr = wr;
    return because(EINVAL, "the shared receive queue is not one with tag matching (IBV_SRQT_TM)");
  }
  return device_->home().exclusively([&] {
    queues::TagList& tags = *srq.queue->tags();
    for (; wr != nullptr; wr = wr->next) {
      const Outcome outcome = execute(tags, *wr);
      if (outcome.error != 0) {
        *bad_wr = wr;
        return outcome.error;
      }
      if ((wr->flags & IBV_OPS_SIGNALED) == 0 && outcome.status == IBV_WC_SUCCESS) continue;
      ibv_wc wc{};
      wc.wr_id = wr->wr_id;
      wc.status = outcome.status;
      wc.opcode = outcome.opcode;
      if (!tags.is_synchronized()) wc.wc_flags = IBV_WC_TM_SYNC_REQ;
      srq.queue->cq()->push(wc, true);
    }
    return 0;
  });
}

}  // namespace verbena::adapter
