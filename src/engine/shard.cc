// SPDX-License-Identifier: Apache-2.0
#include "engine/shard.h"

#include <algorithm>
#include <utility>

#include <sched.h>

namespace verbena::engine {
namespace {

using net::DropReason;
using transport::QueuePair;
using transport::TransmitResult;
using transport::Verdict;

constexpr uint32_t kMaxRegions = 1u << 22;
// Packets one QP may send before others get their turn, and packets received in one round.
constexpr uint32_t kTransmitBudget = 256;
constexpr uint32_t kReceiveBudget = 256;
// Rounds of one engine visit before others get the lock.
constexpr int kEngineRounds = 16;

// An application that polls this often without the engine thread having received anything in between is
// polling: packets need not wake anybody. Doubled each time the guess was wrong (it had polled a little and
// then waited on its memory).
constexpr uint32_t kPollsToTakeOver = 16;
constexpr uint32_t kMostPollsToTakeOver = 1u << 14;
constexpr uint32_t kSteadyLooks = 256;
// After so many polls without a packet the application's thread offers its processor to others, now and then.
constexpr uint32_t kIdlePolls = 64;
constexpr uint32_t kPollsPerYield = 8;
// How often the engine thread looks whether the application still polls: rarer costs latency once, more often
// costs a core.
// Right after the application took over it looks sooner, and then ever rarer.
constexpr Duration kFirstLook = std::chrono::microseconds(50);
constexpr Duration kLookInterval = std::chrono::milliseconds(1);
// Timers may be this late while the engine thread sleeps: the application would have to wake it for each
// request otherwise.
constexpr Duration kTimerSlack = std::chrono::milliseconds(8);
// How soon the engine thread tries again when the port is full and cannot say when it will have room.
constexpr Duration kFullPortInterval = std::chrono::milliseconds(1);
// Longer than anybody holds the lock, unless it is the very thread that forks or exits, in a signal's
// handler.
constexpr Duration kPatience = std::chrono::milliseconds(100);

constexpr DropReason reason_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWrongService:
      return DropReason::kWrongService;
    case Verdict::kBadPkey:
      return DropReason::kBadPkey;
    case Verdict::kBadSource:
      return DropReason::kBadSource;
    default:
      return DropReason::kNoQueuePair;
  }
}

}  // namespace

Shard::Shard(uint32_t slot, std::unique_ptr<net::Port> port, control::StatusPage& status, uint64_t secret)
    : slot_(slot),
      port_(std::move(port)),
      status_(status),
      keys_(secret, kMaxRegions),
      qps_(roce::Qpn::kPerSlot, nullptr),
      reserved_(roce::Qpn::kPerSlot, false),
      next_index_(static_cast<uint32_t>(secret % roce::Qpn::kPerSlot)),
      timers_(MonotonicClock::now()),
      now_(MonotonicClock::now()),
      polls_to_take_over_(kPollsToTakeOver),
      look_interval_(kLookInterval) {
  if (port_ != nullptr) port_->want_ip_details(false);
}

Shard::~Shard() = default;

// ---- the lock

void Shard::enter() {
  lock_.lock();
  now_ = MonotonicClock::now();
}

bool Shard::enter_if_free() {
  if (!lock_.try_lock()) return false;
  now_ = MonotonicClock::now();
  return true;
}

// Whoever has the lock leaves through here: no doorbell unanswered, nothing unsent that nobody would send.
void Shard::leave(Gathering gathering) {
  finish(gathering);
  // A doorbell that was rung after we answered and before we let go had no holder to rely on but us.
  while (doorbells_.any() && enter_if_free()) finish(gathering);
}

void Shard::finish(Gathering gathering) {
  bool must_wake = false;
  if (abandoned_) {
    doorbells_.take([](QueuePair&) {});
  } else {
    answer_doorbells();
    // Only for an application that is sure to come back soon may anything wait.
    const bool returns = application_returns();
    transmit_ready(returns ? Acknowledgements::kHold : Acknowledgements::kSend,
                   returns ? gathering : Gathering::kNo);
    must_wake = engine_must_know();
    engine_told_ |= must_wake;
  }
  lock_.unlock_and_look();
  if (must_wake) sleeper_->wake();
}

// The engine thread sleeps too long for what has come up. (While the application polls it never sleeps long.)
bool Shard::engine_must_know() const {
  if (sleeper_ == nullptr || engine_told_ || !listening_) return false;
  if (!ready_.empty() || port_full_) return true;
  const TimePoint next = timers_.next();
  return next != kNever && next + kTimerSlack < engine_wakes_at_;
}

// ---- the application's threads

void Shard::ring(QueuePair& qp) {
  if (enter_if_free()) {
    if (!abandoned_) note(qp);
  } else {
    doorbells_.ring(qp);
    if (!enter_if_free()) return;  // the holder answers it when leaving
  }
  leave(Gathering::kAllowed);
}

void Shard::poll() {
  if (!enter_if_free()) return;
  bool idle = false;
  if (!abandoned_) {
    answer_doorbells();
    // The application came back without a reply to send: what was held for one goes now.
    transmit_ready(Acknowledgements::kSend, Gathering::kNo);
    const bool received = receive(kReceiveBudget) > 0;
    if (received) now_ = MonotonicClock::now();
    run_timers(now_);
    on_application_poll();
    idle_polls_ = received ? 0 : idle_polls_ + 1;
    idle = idle_polls_ >= kIdlePolls && idle_polls_ % kPollsPerYield == 0;
  }
  leave(Gathering::kNo);
  // Whoever we wait for may need this processor: on a machine with more spinners than processors each message
  // would cost a time slice. With nobody waiting it costs next to nothing.
  if (idle) ::sched_yield();
}

void Shard::on_application_poll() {
  ++polls_;
  if (!listening_ || sleeper_ == nullptr) return;
  if (++quiet_polls_ < polls_to_take_over_) return;
  listening_ = false;
  look_interval_ = kFirstLook;
  sleeper_->listen(false);
  sleeper_->wake();  // from its long sleep, to look now and then from here on
}

void Shard::expect_sleep() {
  enter();
  if (!abandoned_ && sleeper_ != nullptr) {
    quiet_polls_ = 0;
    if (!std::exchange(listening_, true)) sleeper_->listen(true);
  }
  leave(Gathering::kNo);
}

// ---- work, under the lock

void Shard::answer_doorbells() {
  doorbells_.take([this](QueuePair& qp) { note(qp); });
}

// Puts the QP where its state says it belongs.
void Shard::note(QueuePair& qp) {
  if (qp.has_urgent()) {
    if (!qp.ready_hook.is_linked()) ready_.push_back(qp);
  } else if (qp.has_acknowledgement()) {
    if (!qp.acknowledgement_hook.is_linked()) acknowledging_.push_back(qp);
  }
  timers_.arm(qp, qp.deadline());
}

void Shard::touched(QueuePair& qp) {
  auto& status = status_of(qp.config().qpn);
  status.state.store(qp.state(), std::memory_order_relaxed);
  status.remote_qpn.store(qp.attributes().destination.value(), std::memory_order_relaxed);
  note(qp);
}

void Shard::on_packet(const transport::IncomingPacket& incoming) {
  const roce::Qpn destination = incoming.packet.headers.destination;
  if (destination.slot() != slot_ && destination != roce::kMulticastQpn) {
    count_drop(DropReason::kForeignSlot);
    return;
  }
  QueuePair* qp = destination.slot() == slot_ ? qps_[destination.index()] : nullptr;
  if (qp == nullptr) {
    count_drop(DropReason::kNoQueuePair);
    return;
  }
  const ibv_qp_state before = qp->state();
  const Verdict verdict = qp->on_packet(incoming, now_);
  if (verdict != Verdict::kAccepted) count_drop(reason_of(verdict));
  if (qp->state() != before) {
    touched(*qp);
  } else {
    note(*qp);
  }
}

uint32_t Shard::receive(uint32_t budget) {
  return port_ == nullptr ? 0 : port_->receive(*this, budget);
}

void Shard::run_timers(TimePoint now) {
  timers_.advance(now, [&](QueuePair& qp) {
    if (qp.deadline() <= now) {
      const ibv_qp_state before = qp.state();
      qp.on_timer(now);
      if (qp.state() != before) touched(qp);
    }
    note(qp);
  });
}

void Shard::release_acknowledgements() {
  while (!acknowledging_.empty()) {
    QueuePair& qp = acknowledging_.pop_front();
    if (!qp.ready_hook.is_linked()) ready_.push_back(qp);
  }
}

void Shard::transmit_ready(Acknowledgements acknowledgements, Gathering gathering) {
  if (acknowledgements == Acknowledgements::kSend) release_acknowledgements();
  if (ready_.empty() && !port_full_) return;
  transport::PacketSink& sink = port_ != nullptr ? static_cast<transport::PacketSink&>(*port_) : no_wire_;
  ReadyList later;
  bool full = false;
  while (!ready_.empty() && !full) {
    QueuePair& qp = ready_.pop_front();
    if (gathering == Gathering::kAllowed && qp.may_gather()) {
      later.push_back(qp);
      continue;
    }
    const ibv_qp_state before = qp.state();
    // A reply takes the acknowledgement along: as the last segment of a super-packet it costs nothing.
    const TransmitResult result = qp.transmit(sink, now_, kTransmitBudget, true);
    if (!qp.has_acknowledgement()) qp.acknowledgement_hook.unlink();
    if (qp.state() != before) touched(qp);
    timers_.arm(qp, qp.deadline());
    if (result != TransmitResult::kIdle && !qp.ready_hook.is_linked()) later.push_back(qp);
    full = result == TransmitResult::kBusy;
  }
  ready_.splice_back(later);
  if (port_ != nullptr) port_full_ = !port_->flush();
}

void Shard::count_drop(DropReason reason) {
  if (port_ != nullptr) ++port_->counters().dropped[static_cast<size_t>(reason)];
}

void Shard::publish_counters() {
  if (port_ == nullptr) return;
  const net::PortCounters& counters = port_->counters();
  const auto set = [&](size_t at, uint64_t value) {
    status_.port[at].store(value, std::memory_order_relaxed);
  };
  set(control::kPortSentPackets, counters.sent_packets);
  set(control::kPortSentBytes, counters.sent_bytes);
  set(control::kPortReceivedPackets, counters.received_packets);
  set(control::kPortReceivedBytes, counters.received_bytes);
  set(control::kPortSendErrors, counters.send_errors);
  for (size_t i = 0; i < counters.dropped.size(); ++i)
    set(control::kPortFirstDropReason + i, counters.dropped[i]);
}

// ---- QPs

Result<roce::Qpn> Shard::reserve_qpn() {
  for (uint32_t tried = 0; tried < roce::Qpn::kPerSlot; ++tried) {
    const uint32_t index = next_index_;
    next_index_ = (next_index_ + 1) % roce::Qpn::kPerSlot;
    const roce::Qpn qpn = roce::Qpn::in_slot(slot_, index);
    // 0 and 1 are the subnet's and the general services' (slot 0), 0xffffff is every multicast receiver's.
    if (qpn.value() < 2 || qpn == roce::kMulticastQpn) continue;
    if (reserved_[index]) continue;
    reserved_[index] = true;
    control::QpStatus& status = status_.qps[index];
    status.in_use.store(1, std::memory_order_relaxed);
    status.qpn.store(qpn.value(), std::memory_order_relaxed);
    for (auto& counter : status.counters) counter.store(0, std::memory_order_relaxed);
    return qpn;
  }
  return fail(ENOMEM);
}

void Shard::release_qpn(roce::Qpn qpn) {
  reserved_[qpn.index()] = false;
  status_.qps[qpn.index()].in_use.store(0, std::memory_order_relaxed);
}

void Shard::add(QueuePair& qp) {
  qps_[qp.config().qpn.index()] = &qp;
  if (port_ != nullptr && qp.wants_ip_details()) port_->want_ip_details(true);
  touched(qp);
}

void Shard::remove(QueuePair& qp) {
  answer_doorbells();
  // The peer must not wait for what only we can tell it.
  if (!abandoned_) transmit_ready(Acknowledgements::kSend, Gathering::kNo);
  qps_[qp.config().qpn.index()] = nullptr;
  timers_.cancel(qp);
  qp.ready_hook.unlink();
  qp.acknowledgement_hook.unlink();
  release_qpn(qp.config().qpn);
}

// ---- the engine thread

Shard::EngineView Shard::run_engine() {
  enter();
  EngineView view;
  engine_told_ = false;
  if (abandoned_) {
    leave(Gathering::kNo);
    return view;
  }
  publish_counters();
  if (application_polls()) {
    view.wake_at = engine_wakes_at_ = now_ + look_interval_;
    look_interval_ = std::min(look_interval_ * 2, kLookInterval);
    leave(Gathering::kNo);
    return view;
  }
  do {
    view = drive();
    lock_.unlock_and_look();
  } while (doorbells_.any() && enter_if_free());
  return view;
}

// Progress without the application.
Shard::EngineView Shard::drive() {
  bool received_any = false;
  for (int round = 0; round < kEngineRounds; ++round) {
    answer_doorbells();
    const uint32_t received = receive(kReceiveBudget);
    received_any |= received > 0;
    run_timers(now_);
    transmit_ready(Acknowledgements::kSend, Gathering::kNo);
    if (received == 0 && (ready_.empty() || port_full_)) break;
    now_ = MonotonicClock::now();
  }
  const bool was_listening = std::exchange(listening_, true);
  // It waits for its memory or an event, and calls no verb meanwhile.
  if (!polled_since_last_round_ && (received_any || !was_listening)) quiet_polls_ = 0;
  // Packets waited while nobody listened: the application had not really taken over.
  if (received_any && !was_listening)
    polls_to_take_over_ = std::min(polls_to_take_over_ * 2, kMostPollsToTakeOver);
  if (sleeper_ != nullptr) sleeper_->listen(true);

  EngineView view;
  view.wake_at = timers_.next();
  if (port_full_) {
    view.send_fd = port_->send_fd();
    if (view.send_fd < 0) view.wake_at = std::min(view.wake_at, now_ + kFullPortInterval);
  } else if (!ready_.empty()) {
    view.wake_at = now_;
  }
  engine_wakes_at_ = view.wake_at;
  return view;
}

// Whether the application has taken over and is still at it.
bool Shard::application_polls() {
  const bool grows = std::exchange(polls_seen_, polls_) != polls_;
  polled_since_last_round_ = grows;
  if (listening_ || !grows) {
    steady_looks_ = 0;
    return false;
  }
  if (++steady_looks_ >= kSteadyLooks) {
    steady_looks_ = 0;
    polls_to_take_over_ = std::max(kPollsToTakeOver, polls_to_take_over_ / 2);
  }
  return true;
}

void Shard::flush_at_exit() {
  if (!lock_.try_lock_for(kPatience)) return;
  now_ = MonotonicClock::now();
  if (!abandoned_) release_acknowledgements();
  leave(Gathering::kNo);
}

// ---- fork()

bool Shard::before_fork() {
  if (!lock_.try_lock_for(kPatience)) return false;
  now_ = MonotonicClock::now();
  return true;
}

void Shard::abandon() {
  abandoned_ = true;
  lock_.unlock();  // whoever held it, if not we, is a thread that is not in this process
}

}  // namespace verbena::engine
