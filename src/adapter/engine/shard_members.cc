// SPDX-License-Identifier: Apache-2.0
// What belongs to a shard: QPNs, QPs, further inputs.
#include <algorithm>
#include <array>
#include <bit>

#include "adapter/engine/shard.h"

namespace verbena::engine {

using transport::QueuePair;

Result<roce::Qpn> Shard::reserve_qpn() {
  for (uint32_t tried = 0; tried < roce::Qpn::kPerSlot; ++tried) {
    const uint32_t index = next_index_;
    next_index_ = (next_index_ + 1) % roce::Qpn::kPerSlot;
    const roce::Qpn qpn = roce::Qpn::in_slot(slot_, index);
    // 0 and 1 are the subnet's and the general services' (slot 0), 0xffffff is every multicast receiver's.
    if (qpn.value() < 2 || qpn == roce::kMulticastQpn) continue;
    if (reserved_[index]) continue;
    reserved_[index] = true;
    protocol::QpStatus& status = status_.qps[index];
    status.in_use.store(1, std::memory_order_relaxed);
    status.qpn.store(qpn.value(), std::memory_order_relaxed);
    status.way.store(0, std::memory_order_relaxed);
    for (auto& counter : status.counters) counter.store(0, std::memory_order_relaxed);
    for (auto& number : status_.more[index].numbers) number.store(0, std::memory_order_relaxed);
    for (auto& number : status_.paths[index].numbers) number.store(0, std::memory_order_relaxed);
    for (auto& number : status_.details[index].numbers) number.store(0, std::memory_order_relaxed);
    for (auto& number : status_.peers[index].gid) number.store(0, std::memory_order_relaxed);
    return qpn;
  }
  return fail(ENOMEM);
}

void Shard::release_qpn(roce::Qpn qpn) {
  reserved_[qpn.index()] = false;
  status_.qps[qpn.index()].in_use.store(0, std::memory_order_relaxed);
}

// Ports without a descriptor are asked while there are QPs; nobody else can be waiting for packets.
void Shard::ask_ports(bool wanted) {
  if (!ports_.must_be_asked()) return;
  policy_.set_must_be_asked(wanted);
  if (wanted && sleeper_ != nullptr) sleeper_->wake();  // it knows of no reason to come
}

void Shard::add(QueuePair& qp) {
  qps_[qp.config().qpn.index()] = &qp;
  shown_qps_.add(qp.config().qpn.index());
  if (++qp_count_ == 1) ask_ports(true);
  const uint64_t type = status_of(qp.config().qpn).type.load(std::memory_order_relaxed);
  const uint64_t device = status_of(qp.config().qpn).device_index.load(std::memory_order_relaxed);
  trace_.note(qp.config().qpn, trace::Kind::kQpMade, {type, device});
  qp.trace_details(traces_details_);
  if (qp.wants_ip_details()) ports_.want_ip_details(true);
  touched(qp);
}

void Shard::remove(QueuePair& qp) {
  send_what_waits();  // the peer must not wait for what only we can tell it
  if (board_ != nullptr) board_->hide(qp.config().qpn);
  trace_.note(qp.config().qpn, trace::Kind::kQpDestroyed);
  qps_[qp.config().qpn.index()] = nullptr;
  shown_qps_.remove(qp.config().qpn.index());
  if (--qp_count_ == 0) ask_ports(false);
  timers_.cancel(qp);
  qp.ready_hook.unlink();
  qp.acknowledgement_hook.unlink();
  release_qpn(qp.config().qpn);
}

void Shard::touched(QueuePair& qp) {
  if (qp.config().qpn.slot() == slot_) {  // else it stands in for another process's, which shows it
    auto& status = status_of(qp.config().qpn);
    status.state.store(qp.state(), std::memory_order_relaxed);
    status.remote_qpn.store(qp.attributes().destination.value(), std::memory_order_relaxed);
    status.way.store(static_cast<uint64_t>(ports_.way(qp)), std::memory_order_relaxed);
    show_peer(qp);
    if (board_ != nullptr) board_->show(qp);
    show_progress(qp);
  }
  note(qp);
}

// The agent answers for the QP while this process is stopped, and answers its peer alone.
void Shard::show_peer(const QueuePair& qp) {
  const auto gid = std::bit_cast<std::array<uint64_t, 2>>(qp.attributes().path.destination);
  auto& shown = status_.peers[qp.config().qpn.index()].gid;
  for (size_t i = 0; i < gid.size(); ++i) shown[i].store(gid[i], std::memory_order_relaxed);
}

void Shard::show_progress(QueuePair& qp) {
  auto& numbers = status_.details[qp.config().qpn.index()].numbers;
  const auto show = [&](protocol::QpDetail which, uint64_t value) {
    numbers[which].store(value, std::memory_order_relaxed);
  };
  show(protocol::kQpSendPsn, qp.next_send_psn().value());
  show(protocol::kQpReceivePsn, qp.receive_progress());
  show(protocol::kQpWaitingSends, qp.send_queue().waiting());
  show(protocol::kQpWaitingReceives, qp.recv_queue().waiting());
}

// Some at a time: who has many QPs has other things to do.
void Shard::show_some_progress() {
  constexpr uint32_t kQpsPerLook = 16;
  const uint32_t count = std::min(kQpsPerLook, qp_count_.load(std::memory_order_relaxed));
  for (uint32_t i = 0; i < count; ++i) {
    QueuePair& qp = *qps_[shown_qps_.next()];
    if (qp.config().qpn.slot() == slot_) show_progress(qp);
  }
}

void Shard::trace_details(bool on) {
  traces_details_ = on;
  for_each([on](QueuePair& qp) { qp.trace_details(on); });
}

// ---- further inputs

Result<void> Shard::add_input(Input& input) {
  if (sleeper_ != nullptr) {
    const auto attached = input.has_set() ? sleeper_->attach_set(input.fd())
                                          : sleeper_->attach(input.fd(), policy_.engine_drives());
    if (!attached) return attached;
    if (input.bell() != nullptr) {
      if (const auto belled = sleeper_->attach_bell(input.bell()); !belled) {
        sleeper_->detach(input.fd());
        return belled;
      }
      sleeper_->hear_bell(policy_.engine_drives() && policy_.engine_has_bell());
      bell_.store(input.bell(), std::memory_order_release);
    }
  }
  inputs_.push_back(input);
  if (sleeper_ != nullptr && policy_.engine_drives() && input.listen(true)) sleeper_->wake();
  return {};
}

void Shard::remove_input(Input& input) {
  input.input_hook.unlink();
  if (input.bell() != nullptr) bell_.store(nullptr, std::memory_order_release);
  if (sleeper_ == nullptr) return;
  sleeper_->detach(input.fd());
  if (input.bell() != nullptr) (void)sleeper_->attach_bell(nullptr);
}

}  // namespace verbena::engine
