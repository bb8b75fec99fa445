// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/shard.h"

#include <algorithm>
#include <array>
#include <utility>

#include <sched.h>

#include "adapter/engine/driving.h"
#include "adapter/engine/shard_dealing.h"

namespace verbena::engine {
namespace {

using net::DropReason;
using transport::QueuePair;
using transport::TransmitResult;
using transport::Verdict;

// An application that posts so many requests and never polls in vain: what has come is looked for.
constexpr uint32_t kRequestsPerLook = 16;

// So many packets take less time than it is worth to look at the clock for.
constexpr uint32_t kFewPackets = 4;

// What so many messages at once are acknowledged by waits for no reply: who sends as many may have to wait
// for it, and for the application to see to all of them.
constexpr uint32_t kManyMessages = 16;

// Packets one QP may send before others get their turn.
constexpr uint32_t kTransmitBudget = 256;

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

// A poll that finds the lock taken so often in a row offers its processor to the holder. Counted for each
// thread, and for each shard, as a thread may poll several in turn: shards whose slots differ by a multiple
// share a count.
constexpr uint32_t kMissesPerYield = 4;
[[gnu::tls_model("initial-exec")]] constinit thread_local std::array<uint32_t, kMaxShards> misses{};

uint32_t& misses_of(uint32_t slot) {
  return misses[slot % kMaxShards];
}

// Whether a QP whose port is full has to wait for room. UD QPs do not wait for a full channel without a
// bound, so they find out for themselves (transport/ud.h).
bool waits_for_port(const QueuePair& qp) {
  return !goes_by_memory(qp) || qp.config().type != IBV_QPT_UD;
}

}  // namespace

Shard::Shard(uint32_t slot, net::PortList ports, protocol::StatusPage& status, uint64_t beginning,
             Clock clock)
    : slot_(slot),
      status_(status),
      trace_(status.traces, clock),
      clock_(clock),
      qps_(roce::Qpn::kPerSlot, nullptr),
      reserved_(roce::Qpn::kPerSlot, false),
      next_index_(static_cast<uint32_t>(beginning % roce::Qpn::kPerSlot)),
      ports_(std::move(ports)),
      now_(clock_.now()),
      timers_(now_) {
  ports_.want_ip_details(false);
}

Shard::~Shard() = default;

// ---- the lock

// What a thread that has taken the lock begins with.
inline void Shard::begin() {
  current_ = this;
  now_ = clock_.now();
  if (now_ >= next_look_) [[unlikely]]
    look_around();
}

void Shard::enter() {
  lock_.lock();
  begin();
}

bool Shard::enter_if_free() {
  if (!lock_.try_lock()) return false;
  begin();
  return true;
}

void Shard::let_go() {
  current_ = nullptr;
  lock_.unlock_and_look();
}

// The lock's holder leaves through here: no doorbell is left unanswered, and nothing unsent that nobody would
// send.
void Shard::leave(Gathering gathering) {
  finish(gathering);
  // A doorbell that was rung after we answered and before we let go had no holder to rely on but us.
  while (must_come_back() && enter_if_free()) [[unlikely]] finish(gathering);
}

bool Shard::must_come_back() const {
  return doorbells_.any() || engine_waits_.load(std::memory_order_seq_cst);
}

void Shard::finish(Gathering gathering) {
  bool must_wake = false;
  if (abandoned_) [[unlikely]] {
    doorbells_.take([this](QueuePair& qp) { flush_if_lost(qp); });
    engine_waits_.store(false, std::memory_order_relaxed);  // it waited in the parent
  } else {
    note_delivered();
    answer_doorbells();
    const bool for_engine = engine_waits_.load(std::memory_order_relaxed) &&
                            engine_waits_.exchange(false, std::memory_order_relaxed);
    if (for_engine) [[unlikely]]
      receive(kReceiveBudget);
    // Only for an application that is sure to come back soon may anything wait.
    if (!policy_.application_drives()) gathering = Gathering::kNo;
    if (gathering == Gathering::kNo) stop_gathering();
    const bool waits = !std::exchange(many_came_, false) && policy_.acknowledgements_wait(now_);
    if (has_to_transmit(waits)) {
      transmit_ready(waits ? Acknowledgements::kHold : Acknowledgements::kSend, gathering);
    }
    if (waits && !acknowledging_.empty()) {
      const TimePoint time = policy_.holds_acknowledgements(now_);
      if (time != kNever) sleeper_->come_by(time);
    }
    policy_.leaves(now_);
    // Last: it may wake the engine thread, which then finds nothing that would make it come again.
    const bool is_something_there = for_engine && policy_.engine_drives() && listen(true);
    must_wake =
        is_something_there || (policy_.engine_may_oversleep() &&
                               policy_.must_wake_engine(pending(), [this] { return timers_.next(); }));
  }
  let_go();
  if (must_wake) [[unlikely]]
    sleeper_->wake();
}

DrivingPolicy::Pending Shard::pending() {
  return {.now = !ready_.empty(),
          .port_full = ports_.any_full(),
          .exact = std::min(alarms_.next(), paced_until_)};
}

// ---- the application's threads

void Shard::ring(QueuePair& qp) {
  if (enter_if_free()) {
    policy_.enters(now_);
    if (!abandoned_) [[likely]] {
      take_posted(qp);
      if (qp.route().direct != nullptr) look_beside_requests();
    } else {
      flush_if_lost(qp);
    }
  } else {
    doorbells_.ring(qp);
    wait_for_holder();
    if (!enter_if_free()) return;  // the holder answers it when leaving
  }
  leave(Gathering::kAllowed);
}

// Whether what has been posted waits for more, which comes soon if what was posted before is not long ago.
bool Shard::gathers(QueuePair& qp) {
  const bool goes_on = now_ - std::exchange(posted_at_, now_) <= kGathersFor;
  if (!goes_on || !policy_.application_drives() || !qp.may_gather()) return false;
  if (gathering_.empty()) gathering_since_ = now_;
  if (now_ - gathering_since_ > kGathersFor) {
    stop_gathering();
    return false;
  }
  if (!qp.ready_hook.is_linked()) gathering_.push_back(qp);
  return true;
}

// At once, where it goes by memory: to put the QP into lists and to take it out again costs more than a
// message. Unless it may wait for others.
void Shard::take_posted(QueuePair& qp) {
  qp.trace_posted();
  if (!goes_by_memory(qp) || ports_.any_full()) return note(qp);
  if (gathers(qp)) return;
  const ibv_qp_state before = qp.state();
  const bool is_all = qp.send_at_once(now_);
  if (!is_all || qp.state() != before || qp.has_lost_completions()) [[unlikely]]
    return acted_on(qp, before);
  qp.ready_hook.unlink();
  qp.acknowledgement_hook.unlink();
  timers_.arm(qp, qp.deadline());
  ports_.push_memory();
}

// Requests that are carried out without the peer's help complete at once. So an application that goes on
// posting them polls a completion queue that is never empty, and never drives us.
void Shard::look_beside_requests() {
  if (++requests_since_look_ < kRequestsPerLook) [[likely]]
    return;
  requests_since_look_ = 0;
  if (receive(kReceiveBudget, Visitor::kPoller) > 0) now_ = clock_.now();
  run_timers(now_);
}

// Of the many polls for one message most find nothing. Where messages come by memory such a poll is over at
// once: what else there is to do in a poll is done when a moment has passed.
bool Shard::finds_nothing() const {
  return port_asking_.memory_is_used() && ready_.empty() && gathering_.empty() && acknowledging_.empty() &&
         !ports_.any_full() && !doorbells_.any() && !engine_waits_.load(std::memory_order_relaxed) &&
         ports_.memory_is_quiet() && clock_.is_recent();
}

// The thread that we wait for may need this processor: on a machine with more spinners than processors each
// message would cost a time slice. With nobody waiting it costs next to nothing to offer it. Afterwards the
// poll looks once more: an adapter's completion of what came meanwhile would be there by now. Programs that
// find none look for the events of connections next (libfabric does), and would meet a disconnection before
// the completion of a message that had arrived before it.
void Shard::poll() {
  for (bool has_yielded = false;; has_yielded = true) {
    if (!lock_.try_lock()) {
      wait_in_poll();
      if (!lock_.try_lock()) return;
    }
    if (finds_nothing()) {
      lock_.unlock_and_look();
      if (!must_come_back() || !lock_.try_lock()) return;
    }
    begin();
    misses_of(slot_) = 0;
    requests_since_look_ = 0;
    policy_.enters(now_);
    bool yields = false;
    if (!abandoned_) [[likely]] {
      answer_doorbells();
      stop_gathering();
      // The application came back without a reply to send: what was held for one goes now.
      if (has_to_transmit(false)) transmit_ready(Acknowledgements::kSend, Gathering::kNo);
      const uint32_t received = receive(kReceiveBudget, Visitor::kPoller);
      if (received > kFewPackets) now_ = clock_.now();
      run_timers(now_);
      const DrivingPolicy::Polled verdict = policy_.polled(now_, received);
      yields = verdict.yields && !has_yielded;
      if (verdict.takes_over) [[unlikely]] {
        listen(false);
        sleeper_->wake();  // from its long sleep, to look now and then from here on
      }
    }
    leave(Gathering::kNo);
    if (!yields) [[likely]]
      return;
    ::sched_yield();
  }
}

// The holder may have lost its processor to us, or to others that poll as we do: each of them would poll
// for a whole time slice, in vain, while there are more of them than processors.
void Shard::wait_in_poll() {
  wait_for_holder();
  if (++misses_of(slot_) % kMissesPerYield == 0) ::sched_yield();
}

// The application would be here, were the lock free.
void Shard::wait_for_holder() {
  if (!application_waits_.load(std::memory_order_relaxed)) {
    application_waits_.store(true, std::memory_order_relaxed);
  }
}

// ---- work, under the lock

void Shard::answer_doorbells() {
  doorbells_.take([this](QueuePair& qp) {
    qp.trace_posted();
    note(qp);
  });
}

// Puts the QP where its state says it belongs.
void Shard::note(QueuePair& qp) {
  const bool is_urgent = qp.has_urgent();
  if (!gathering_.empty() && is_urgent && !qp.may_gather()) stop_gathering();
  if (is_urgent && !qp.ready_hook.is_linked()) ready_.push_back(qp);
  // What is urgent takes it along, unless that waits for room.
  const bool goes_alone = !is_urgent || ports_.is_full(qp);
  if (goes_alone && qp.has_acknowledgement() && !qp.acknowledgement_hook.is_linked()) {
    acknowledging_.push_back(qp);
  }
  timers_.arm(qp, qp.deadline());
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
  // Any user of this host can send in the peer's name by the wire, but nobody else by its channel.
  if (qp->peer_is_local() && goes_by_memory(*qp)) [[unlikely]] {
    count_drop(DropReason::kBadSource);
    return;
  }
  deliver(*qp, incoming);
}

// Packets often come to the same QP one behind the other, and what comes of them is seen to once. A QP that
// stands in for another process's is not ours to remember: it may end at any time.
void Shard::deliver(QueuePair& qp, const transport::IncomingPacket& incoming) {
  const ibv_qp_state before = qp.state();
  qp.trace_received(incoming);
  const Verdict verdict = qp.on_packet(incoming, now_);
  if (verdict != Verdict::kAccepted) [[unlikely]] {
    count_drop(reason_of(verdict));
    qp.trace_refusal(verdict, incoming.packet.headers);
  }
  delivered(qp, before);
}

bool Shard::deliver_plainly(QueuePair& qp, const transport::PlainSend& message, const roce::Path& path) {
  const ibv_qp_state before = qp.state();
  const auto verdict = qp.on_plain_send(message, path, now_);
  if (!verdict) [[unlikely]]
    return false;
  if (*verdict != Verdict::kAccepted) [[unlikely]]
    count_drop(reason_of(*verdict));
  delivered(qp, before);
  return true;
}

inline void Shard::delivered(QueuePair& qp, ibv_qp_state before) {
  if (delivered_to_ != &qp) {
    note_delivered();
    if (qp.config().qpn.slot() == slot_) delivered_to_ = &qp;
  }
  if (delivered_to_ != &qp || qp.state() != before || qp.has_lost_completions()) [[unlikely]] {
    delivered_to_ = nullptr;
    acted_on(qp, before);
  }
}

void Shard::note_delivered() {
  if (delivered_to_ != nullptr) note(*std::exchange(delivered_to_, nullptr));
}

void Shard::acted_on(QueuePair& qp, ibv_qp_state before) {
  qp.answer_lost_completions();
  if (qp.state() != before) {
    touched(qp);
  } else {
    note(qp);
  }
}

uint32_t Shard::receive(uint32_t budget, Visitor visitor) {
  uint32_t by_memory = 0;
  uint32_t received = 0;
  for (Input& input : inputs_) {
    if (!input.is_memory() && visitor == Visitor::kAtBell) continue;
    (input.is_memory() ? by_memory : received) += input.receive(budget, now_);
  }
  port_asking_.memory_brought(by_memory);
  if (visitor == Visitor::kOther || (visitor == Visitor::kPoller && port_asking_.asks())) {
    const uint32_t by_ports = ports_.receive(*this, budget);
    port_asking_.ports_brought(by_ports);
    received += by_ports;
  }
  note_delivered();
  if (by_memory >= kManyMessages) many_came_ = true;
  return received + by_memory;
}

void Shard::settle() {
  if (abandoned_) return;
  // A socket that was idle is asked for one datagram each time, and the last may be the one that counts.
  for (uint32_t received = 0; received < kSettleBudget;) {
    const uint32_t got = receive(kReceiveBudget);
    if (got == 0) break;
    received += got;
  }
  send_what_waits();
}

void Shard::send_what_waits() {
  note_delivered();
  answer_doorbells();
  if (!abandoned_) transmit_ready(Acknowledgements::kSend, Gathering::kNo);
}

// True: something has come by a way that would not make the descriptor readable any more.
bool Shard::listen(bool on) {
  sleeper_->listen(on);
  sleeper_->hear_bell(on && policy_.engine_has_bell());
  bool is_something_there = false;
  for (Input& input : inputs_) {
    const bool is_heard = input.bell() == nullptr || !policy_.is_away_from_bell();
    is_something_there |= input.listen(on && is_heard);
  }
  return is_something_there;
}

void Shard::run_timers(TimePoint now) {
  timers_.advance(now, [&](QueuePair& qp) {
    if (qp.deadline() <= now) {
      const ibv_qp_state before = qp.state();
      qp.on_timer(now);
      qp.answer_lost_completions();
      if (qp.state() != before) touched(qp);
      if (ports_.is_full(qp) && !waits_for_port(qp)) qp.ready_hook.unlink();  // it waits no longer
    }
    note(qp);
  });
  alarms_.ring_due(now);
}

void Shard::set_alarm(Alarm& alarm, Duration after) {
  alarms_.cancel(alarm);
  alarms_.set(alarm, now_ + after);
}

void Shard::release_acknowledgements() {
  while (!acknowledging_.empty()) {
    QueuePair& qp = acknowledging_.pop_front();
    if (!qp.ready_hook.is_linked()) {
      ready_.push_back(qp);
    } else if (ports_.is_full(qp)) {
      qp.transmit_acknowledgement();
    }
  }
}

void Shard::transmit_ready(Acknowledgements acknowledgements, Gathering gathering) {
  if (gathering == Gathering::kNo) stop_gathering();
  if (acknowledgements == Acknowledgements::kSend) release_acknowledgements();
  if (ports_.any_full()) ports_.flush(ready_);
  if (ready_.empty()) return;
  ReadyList later;
  ReadyList stopped;  // in the midst of what they have to send: behind those that have not had their turn
  while (!ready_.empty()) {
    QueuePair& qp = ready_.pop_front();
    if (ports_.is_full(qp) && waits_for_port(qp)) {
      qp.transmit_acknowledgement();
      if (!qp.has_acknowledgement()) qp.acknowledgement_hook.unlink();
      ports_.wait(qp);
      continue;
    }
    if (gathering == Gathering::kAllowed && !goes_by_memory(qp) && qp.may_gather()) {
      later.push_back(qp);
      continue;
    }
    const ibv_qp_state before = qp.state();
    const transport::Route* const route = &qp.route();
    // Small messages go together; the rest is left to transmit().
    if (goes_by_memory(qp)) (void)qp.send_at_once(now_);
    // A reply takes the acknowledgement along: as the last segment of a super-packet it costs nothing.
    const TransmitResult result = qp.transmit(now_, kTransmitBudget, true);
    qp.answer_lost_completions();
    if (!qp.has_acknowledgement()) qp.acknowledgement_hook.unlink();
    if (qp.state() != before || &qp.route() != route) touched(qp);
    timers_.arm(qp, qp.deadline());
    if (result == TransmitResult::kPaced) {
      paced_until_ = std::min(paced_until_, qp.deadline());
    } else if (result != TransmitResult::kIdle && !qp.ready_hook.is_linked()) {
      if (result == TransmitResult::kBusy) {
        ports_.note_full(qp);
        const auto way = route->traits.lossless ? protocol::TraceWay::kMemory : protocol::TraceWay::kWire;
        trace_.note_frequent(qp.config().qpn, trace::Kind::kPortFull, {static_cast<uint64_t>(way)});
      }
      (result == TransmitResult::kBusy ? stopped : later).push_back(qp);
    }
  }
  while (!stopped.empty()) ports_.wait(stopped.pop_front());
  ready_.splice_back(later);
  ports_.flush(ready_);
  now_ = clock_.now();
}

void Shard::count_drop(DropReason reason) {
  ++ports_.counters().dropped[static_cast<size_t>(reason)];
}

}  // namespace verbena::engine
