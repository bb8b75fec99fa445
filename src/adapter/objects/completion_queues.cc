// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "adapter/engine/event_wait.h"
#include "adapter/objects/data_path.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"
#include "base/log.h"

namespace verbena::adapter {

namespace {

// Longer than a waiting thread takes to leave when it was told to.
constexpr Duration kPatience = std::chrono::seconds(1);

// Takes an event of the channel. If all its events come from one shard that has a wake-up, sleeps there
// instead of at the channel's descriptor.
template <class Visit>
Result<void> take_event(CompChannel& channel, Visit visit) {
  engine::Shard* const shard = channel.shards.only();
  const Bell* const bell = shard != nullptr ? shard->bell() : nullptr;
  if (bell != nullptr && !channel.events->has_some() && !channel.events->is_nonblocking()) {
    const std::shared_ptr<queues::EventChannel> kept = channel.events;  // `channel` may go meanwhile
    engine::EventWait wait(*shard, *kept, *bell);
    if (wait.is_there()) return wait.take(visit);
  }
  return channel.events->take(visit);
}

// A negative cqe arrives here as a number that is too large.
int check_entries(uint32_t entries) {
  if (entries >= 1 && entries <= uint32_t{kMaxCqe}) return 0;
  return static_cast<int>(entries) < 1 ? because(EINVAL, "cqe {} is less than 1", static_cast<int>(entries))
                                       : because(EINVAL, "cqe {} exceeds max_cqe {}", entries, kMaxCqe);
}

using provider::CompletionCounterCaps;
using provider::CompletionCounterInitAttr;
using provider::kCountRead;
using provider::kCountReceive;
using provider::kCountsBytes;
using provider::kCountSend;
using provider::kCountsRequests;
using provider::kCountWrite;

struct CountedKind {
  uint32_t flag;
  transport::CountedRequest counted;
};
constexpr CountedKind kCountedKinds[] = {
    {kCountSend, transport::kCountedSend},
    {kCountReceive, transport::kCountedReceive},
    {kCountRead, transport::kCountedRead},
    {kCountWrite, transport::kCountedWrite},
};
constexpr uint32_t kCountedFlags = kCountSend | kCountReceive | kCountRead | kCountWrite;

}  // namespace

Result<ibv_comp_channel*> SoftwareContext::create_comp_channel() {
  if (device_->is_gone()) return fail(EIO);
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  auto channel = std::make_unique<CompChannel>(*device_);
  channel->fd = (*events)->fd();
  channel->refcnt = 0;
  channel->events = std::move(*events);
  return channels_.add(std::move(channel));
}

int SoftwareContext::destroy_comp_channel(ibv_comp_channel* channel) {
  CompChannel& object = CompChannel::of(channel);
  if (object.has_users()) return because(EBUSY, "completion queues use it");
  object.retire();
  channels_.destroy(object);
  return 0;
}

void CompChannel::retire() {
  if (owner.inherited()) return;
  if (!events->dismiss_waiter(kPatience)) {
    log_warning("a completion channel goes away while a thread waits for its events");
  }
}

Cq::Cq(OpenDevice& device)
    : ibv_cq_ex{},
      TableEntry(device),
      account(mutex, cond),
      async_events(kCqEvents, {.element = {.cq = abi()}, .event_type = {}}, &account,
                   &async_events_completed) {}

// ---- called by a shard that holds its lock; on_completion_event() also by modify_cq()

void Cq::on_completion_event() {
  engine::Shard* shard = engine::Shard::current();
  if (shard != nullptr && moderation_ns.load() != 0) shards.cancel_alarm(*shard);
  if (comp_channel != nullptr) comp_channel->events->post(*this);
}

void Cq::on_event_held() {
  engine::Shard* shard = engine::Shard::current();
  const bool set = shard != nullptr && shards.set_alarm(*shard, *queue, Duration(moderation_ns.load()));
  if (!set) queue->release_event();
}

Result<ibv_cq*> SoftwareContext::create_cq(int cqe, void* cq_context, ibv_comp_channel* channel,
                                           int comp_vector) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(cqe);  // a negative number becomes too large
  attr.cq_context = cq_context;
  attr.channel = channel;
  attr.comp_vector = static_cast<uint32_t>(comp_vector);
  return make_cq(attr).map([](Cq* cq) { return cq->abi(); });
}

Result<ibv_cq_ex*> SoftwareContext::create_cq_ex(ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kUnderstood = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  ibv_cq_init_attr_ex asked = *attr;
  if ((asked.comp_mask & ~kUnderstood) != 0)
    return fail(because(EOPNOTSUPP, "comp_mask {:#x} has bits that are unknown here", asked.comp_mask));
  if ((asked.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) == 0) asked.flags = 0;
  if ((asked.flags & ~kFlags) != 0 || (asked.wc_flags & ~kReadableFields) != 0)
    return fail(because(EOPNOTSUPP, "flags {:#x} or wc_flags {:#x} have some that are unknown here",
                        asked.flags, asked.wc_flags));
  if ((asked.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) == 0) {
    asked.parent_domain = nullptr;
  } else if (!device_->made(asked.parent_domain) || Pd::of(asked.parent_domain).parent_of == nullptr) {
    return fail(because(EINVAL, "parent_domain is not a parent domain of this ibv_context"));
  }
  auto cq = make_cq(asked);
  if (!cq) return tl::unexpected(cq.error());
  fill_extended_polling(**cq, asked.wc_flags);
  return *cq;
}

Result<Cq*> SoftwareContext::make_cq(const ibv_cq_init_attr_ex& attr) {
  if (device_->is_gone()) return fail(EIO);
  if (const int error = check_entries(attr.cqe); error != 0) return fail(error);
  if (attr.comp_vector >= uint32_t{kCompletionVectors})
    return fail(because(EINVAL, "comp_vector {} is not below num_comp_vectors {}",
                        static_cast<int>(attr.comp_vector), kCompletionVectors));
  ibv_comp_channel* channel = attr.channel;
  if (channel != nullptr && !device_->made(channel))
    return fail(because(EINVAL, "channel is none of this ibv_context"));
  queues::CompletionQueue::Options options;
  options.device_clock = (attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
  options.wall_clock = (attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0;
  options.single_threaded = (attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  options.ignore_overrun = (attr.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
  auto made = completion_queues_.make(*device_);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Cq> cq = std::move(*made);
  if (attr.parent_domain != nullptr) {
    cq->parent_domain = &Pd::of(attr.parent_domain);
    options.memory = cq->parent_domain->memory.get();
    options.single_threaded |= cq->parent_domain->thread != nullptr;
  }
  auto queue = queues::CompletionQueue::create(attr.cqe, cq.get(), options);
  if (!queue) return tl::unexpected(queue.error());
  cq->queue = std::move(*queue);
  cq->context = device_->context();
  cq->channel = channel;
  cq->cq_context = attr.cq_context;
  cq->handle = device_->next_handle();
  cq->cqe = static_cast<int>(cq->queue->capacity());
  cq->shown = device_->show(protocol::ObjectKind::kCq, {device_->context_number(), 0, cq->queue->capacity()});
  cq->users.show_in(cq->shown, protocol::kCqUsers);
  if (cq->parent_domain != nullptr) ++cq->parent_domain->users;
  if (channel != nullptr) {
    cq->comp_channel = &CompChannel::of(channel);
    cq->comp_channel->add_user();
  }
  return completion_queues_.add(std::move(cq));
}

int SoftwareContext::resize_cq(ibv_cq* cq, int cqe) {
  if (const int error = check_entries(static_cast<uint32_t>(cqe)); error != 0) return error;
  Cq& object = Cq::of(cq);
  // An adapter completes what was posted before in less time than this call takes. rdma-core's own test
  // counts on that: it posts six requests and expects that a smaller queue is refused (test_resize_cq).
  object.drive();
  if (auto resized = object.queue->resize(static_cast<uint32_t>(cqe)); !resized) {
    if (resized.error().code == EINVAL)
      because(EINVAL, "cqe {} is less than the number of completions that wait to be polled", cqe);
    if (resized.error().code == EBUSY) because(EBUSY, "a batch of ibv_start_poll() is open");
    return resized.error().code;
  }
  cq->cqe = static_cast<int>(object.queue->capacity());
  object.shown.set(protocol::kCqEntries, object.queue->capacity());
  return 0;
}

// Sets the period first, so that an event held back from now on is held for that long. (noinline: otherwise
// GCC 12 takes the C struct for the whole object, and warns of a store beyond it.)
[[gnu::noinline]] void Cq::moderate(uint32_t count, uint32_t microseconds) {
  if (count > 0) moderation_ns.store(int64_t{microseconds} * 1000);
  queue->moderate(count);
  if (count == 0) moderation_ns.store(0);
}

// Events are held back only with a count above 1 and a period, as with hardware.
int SoftwareContext::modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  if (attr->attr_mask == 0) return because(EINVAL, "attr_mask is 0");
  if ((attr->attr_mask & ~uint32_t{IBV_CQ_ATTR_MODERATE}) != 0) return EOPNOTSUPP;
  const ibv_moderate_cq& wanted = attr->moderate;
  const bool holds = wanted.cq_count > 1 && wanted.cq_period > 0;
  Cq& object = Cq::of(cq);
  object.moderate(holds ? wanted.cq_count : 0, holds ? wanted.cq_period : 0);
  return 0;
}

int SoftwareContext::destroy_cq(ibv_cq* abi_cq) {
  Cq& cq = Cq::of(abi_cq);
  if (cq.users.load() != 0) {
    because(EBUSY, "{} queue pairs, shared receive queues or work queues use it", cq.users.load());
    return log_level() < LogLevel::kError ? EBUSY : say_busy(abi_cq, queue_pairs_.users_of(&cq));
  }
  cq.retire();
  // Waits until the application has acknowledged the events that it has taken (ibv_get_cq_event(3)).
  cq.account.await(cq.comp_events_completed, cq.comp_events_taken, "ibv_destroy_cq", abi_cq,
                   "ibv_ack_cq_events");
  cq.async_events.await("ibv_destroy_cq", abi_cq);
  if (cq.comp_channel != nullptr) cq.comp_channel->remove_user();
  Pd* const domain = cq.parent_domain;
  completion_queues_.destroy(cq);  // gives its ring back to the domain's allocator
  if (domain != nullptr) --domain->users;
  return 0;
}

void Cq::retire() {
  if (owner.inherited()) return;  // the counts in the descriptors are the parent's
  shards.cancel_alarms();
  if (comp_channel != nullptr) comp_channel->events->withdraw(*this);
  async_events.withdraw(owner.events());
}

// ---- completion events

int SoftwareContext::get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  const auto taken = take_event(CompChannel::of(channel), [&](queues::EventSource& source) {
    Cq& found = Cq::of(source);
    ++found.comp_events_taken;
    *cq = found.abi();
    *cq_context = found.cq_context;
  });
  return taken ? 0 : taken.error().code;
}

int SoftwareContext::query_comp_cntr_caps(CompletionCounterCaps& caps) {
  caps = {UINT64_MAX, kMaxCompletionCounters, kCountedFlags};
  return 0;
}

Result<provider::CompletionCounter*> SoftwareContext::create_comp_cntr(
    const CompletionCounterInitAttr& attr) {
  if (device_->is_gone()) return fail(EIO);
  if (attr.comp_mask != 0 || attr.flags != 0 || (attr.type != kCountsRequests && attr.type != kCountsBytes))
    return fail(because(EOPNOTSUPP, "comp_mask {:#x} or flags {:#x} are not 0, or type {} is unknown",
                        attr.comp_mask, attr.flags, attr.type));
  auto counter = completion_counters_.make(*device_);
  if (!counter) return tl::unexpected(counter.error());
  (*counter)->handle = device_->next_handle();
  (*counter)->count = std::make_shared<transport::CompletionCount>(attr.type == kCountsBytes);
  return completion_counters_.add(std::move(*counter));
}

int SoftwareContext::destroy_comp_cntr(provider::CompletionCounter* abi) {
  CompletionCounter& counter = CompletionCounter::of(abi);
  if (const long users = counter.uses.count(); users != 0)
    return because(EBUSY, "it is attached to {} queue pairs", users);
  completion_counters_.destroy(counter);
  return 0;
}

// Unknown kinds of requests and raw QPs are EOPNOTSUPP.
int SoftwareContext::attach_comp_cntr(ibv_qp* abi_qp, provider::CompletionCounter* abi, uint32_t requests) {
  if (requests == 0) return because(EINVAL, "op_mask is 0");
  if ((requests & ~kCountedFlags) != 0)
    return because(EOPNOTSUPP, "op_mask {:#x}: bits {:#x} are not counted", requests,
                   requests & ~kCountedFlags);
  Qp& qp = Qp::of(abi_qp);
  if (qp.raw != nullptr)
    return because(EOPNOTSUPP, "queue pairs for raw packets have no completion counters");
  CompletionCounter& counter = CompletionCounter::of(abi);
  const std::lock_guard modifying(qp.modifying);
  return qp.shard.exclusively([&]() -> int {
    const ibv_qp_state state = qp.transport->state();
    if (state != IBV_QPS_RESET && state != IBV_QPS_INIT)
      return because(EINVAL, "the queue pair is in neither RESET nor INIT");
    transport::CompletionCounts counts = qp.transport->completion_counts();
    for (const CountedKind& kind : kCountedKinds) {
      if ((requests & kind.flag) == 0) continue;
      if (counts[kind.counted] != nullptr)
        return because(EBUSY, "op_mask {:#x}: another counter has {:#x}", requests, kind.flag);
      counts[kind.counted] = counter.count;
    }
    qp.transport->set_completion_counts(counts);
    qp.counters.push_back(counter.uses.add());
    return 0;
  });
}

CqShards::Member* CqShards::find(const engine::Shard& shard) {
  for (Member& member : members_) {
    if (member.shard.load(std::memory_order_relaxed) == &shard) return &member;
  }
  return nullptr;
}

void CqShards::join(engine::Shard& shard) {
  const std::lock_guard guard(lock_);
  Member* member = find(shard);
  if (member == nullptr) {  // a free place exists: there are as many as there can be shards
    member = std::ranges::find_if(members_, [](const Member& m) { return m.users == 0; });
    member->shard.store(&shard, std::memory_order_release);
    const auto place = static_cast<uint32_t>(member - members_.data());
    used_.store(std::max(used_.load(std::memory_order_relaxed), place + 1), std::memory_order_release);
  }
  ++member->users;
}

// Cancels the alarm first, because another shard may get the place next.
void CqShards::leave(engine::Shard& shard) {
  if (const Member* known = find(shard); known != nullptr && known->may_be_set.load())
    shard.exclusively([&] { cancel_alarm(shard); });
  const std::lock_guard guard(lock_);
  Member* member = find(shard);
  if (member != nullptr && --member->users == 0) member->shard.store(nullptr, std::memory_order_release);
}

engine::Shard* CqShards::first() const {
  for (const Member& member : members_) {
    if (engine::Shard* shard = member.shard.load(std::memory_order_acquire)) return shard;
  }
  return nullptr;
}

engine::Shard* CqShards::only() const {
  engine::Shard* only = nullptr;
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    engine::Shard* shard = members_[i].shard.load(std::memory_order_acquire);
    if (shard == nullptr) continue;
    if (only != nullptr) return nullptr;
    only = shard;
  }
  return only;
}

bool CqShards::set_alarm(engine::Shard& shard, queues::CompletionQueue& queue, Duration after) {
  Member* member = find(shard);
  if (member == nullptr) return false;
  member->queue = &queue;
  member->may_be_set.store(true, std::memory_order_relaxed);
  shard.set_alarm(*member, after);
  return true;
}

void CqShards::cancel_alarms() {
  for (Member& member : members_) {
    engine::Shard* shard = member.shard.load(std::memory_order_acquire);
    if (shard != nullptr && member.may_be_set.load())
      shard->exclusively([&] { shard->cancel_alarm(member); });
  }
}

}  // namespace verbena::adapter
