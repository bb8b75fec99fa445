// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/slot_leases.h"

#include "agent/sessions/client_files.h"
#include "base/log.h"

namespace verbena::agent {

Orphans::~Orphans() {
  while (!orphans_.empty()) remove(orphans_.begin()->first);
}

std::optional<SharedProcess> Orphans::find_process(const Lessee& lessee) const {
  if (lessee.process) return has_ended(lessee.process->get()) ? nullptr : lessee.process;
  if (lessee.pid <= 0) return std::nullopt;
  return share_process(watch_process(lessee.pid), closer_, lessee.uid);
}

bool Orphans::watch(const LeasedSlot& slot, OnEnd on_end) {
  if (orphans_.contains(slot.index)) return true;
  auto end = [index = slot.index, on_end] { on_end(index); };
  const auto process = find_process(slot.lessee);
  if (!process) {
    const auto timer = loop_.at(MonotonicClock::now() + unseen_patience_, std::move(end));
    orphans_[slot.index] = {.process = nullptr, .timer = timer};
    return true;
  }
  if (!*process) return false;
  loop_.watch_for(slot.lessee.uid, (*process)->get(), EPOLLIN, [end = std::move(end)](uint32_t) {
    end();
    return false;
  });
  orphans_[slot.index] = {.process = *process, .timer = std::nullopt};
  if (!slot.lessee.process && slot.lessee.start_time != 0) check_start(slot, *process, std::move(on_end));
  return true;
}

// If no thread can be asked, trusts the pid: at worst, the slot stays leased until a later process ends.
void Orphans::check_start(const LeasedSlot& slot, const SharedProcess& process, OnEnd on_end) {
  if (closer_ == nullptr) return;
  const auto is_same = std::make_shared<bool>(true);
  const auto check = [is_same, pid = slot.lessee.pid, start = slot.lessee.start_time](int) {
    *is_same = is_same_start(start_time_of(pid), start);
  };
  const auto take = [this, is_same, process, index = slot.index, on_end = std::move(on_end)] {
    const auto found = orphans_.find(index);
    if (!*is_same && found != orphans_.end() && found->second.process == process) on_end(index);
  };
  const auto begun = closer_->work_with(slot.lessee.uid, process->get(), check, take);
  if (!begun) log_debug("pid {} may be a later process: errno {}", slot.lessee.pid, begun.error().code);
}

bool Orphans::remove(uint32_t slot) {
  auto node = orphans_.extract(slot);
  if (node.empty()) return false;
  const Orphan& orphan = node.mapped();
  if (orphan.process) loop_.forget(orphan.process->get());
  if (orphan.timer) loop_.cancel(*orphan.timer);
  return true;
}

namespace {

constexpr int kTakenBackAtOnce = 2;

}  // namespace

SlotLeases::SlotLeases(EventLoop& loop, Wire& wire, SlotTable& slots, CounterPublisher& counters,
                       DomainTable& domains, AgentHost& agent)
    : loop_(loop),
      wire_(wire),
      slots_(slots),
      counters_(counters),
      domains_(domains),
      agent_(agent),
      orphans_(loop, wire.closer()) {}

void SlotLeases::pause_wire() {
  wire_retry_ = MonotonicClock::now() + kWireInterval / 2;
}

void SlotLeases::seek_wire(TimePoint now) {
  if (wire_.has_sockets() || now < wire_retry_) return;
  pause_wire();
  wire_.open();
  if (!wire_.has_sockets()) return;
  agent_.slot_changed(0);
  agent_.wire_opened();
}

Result<LeasedSlot> SlotLeases::lease(const Lessee& lessee) {
  const TimePoint now = MonotonicClock::now();
  seek_wire(now);
  if (counters_.is_behind(lessee.uid)) return fail(EDQUOT);
  auto slot = slots_.lease(lessee, now);
  if (slot) agent_.slot_changed(slot->index);
  counters_.collect_regularly();
  return slot;
}

Result<void> SlotLeases::keep(uint32_t index, const Lessee& lessee) {
  return welcome(index, slots_.keep(index, lessee));
}

Result<void> SlotLeases::claim(uint32_t index, const protocol::SlotSecret& secret, const Lessee& lessee) {
  return welcome(index, slots_.claim(index, secret, lessee));
}

Result<void> SlotLeases::welcome(uint32_t index, Result<void> kept) {
  if (!kept) return kept;
  if (orphans_.remove(index)) agent_.orphan_returned();
  agent_.slot_changed(index);
  counters_.collect_regularly();
  return kept;
}

Result<void> SlotLeases::take_back(uint32_t index, uint64_t session) {
  if (session == 0) orphans_.remove(index);
  if (is_leased_to_session(index, session)) {
    const LeasedSlot slot = *slots_.find_leased(index);
    agent_.lease_ending(slot, session != 0);
    counters_.finish(slot);
    counters_.show();
  }
  auto taken = slots_.take_back(index, session, MonotonicClock::now());
  if (taken) {
    domains_.close_slot(session, index);
    agent_.slot_changed(index);
  }
  agent_.slots_returned();
  return taken;
}

void SlotLeases::take_back_all(uint64_t session) {
  domains_.close_all(session);
  const auto slot = slots_.first_leased_to(session);
  if (!slot) return;
  if (take_back_some(session)) {
    loop_.in_turn_of(slot->lessee.uid, [this, session] { return take_back_some(session); });
  }
}

// A slot may leave a trace of half a megabyte, which is copied: so only a few slots per turn.
bool SlotLeases::take_back_some(uint64_t session) {
  for (int i = 0; i < kTakenBackAtOnce; ++i) {
    const auto slot = slots_.first_leased_to(session);
    if (!slot) break;
    agent_.lease_ending(*slot, false);
    counters_.finish(*slot);
    [[maybe_unused]] const auto taken = slots_.take_back(slot->index, session, MonotonicClock::now());
    agent_.slot_changed(slot->index);
  }
  counters_.show();
  if (slots_.first_leased_to(session)) return true;
  agent_.slots_returned();
  return false;
}

void SlotLeases::watch_orphans() {
  const auto take = [this](uint32_t index) { [[maybe_unused]] const auto taken = take_back(index, 0); };
  for (const LeasedSlot& slot : slots_.leased_to(0)) {
    if (!orphans_.watch(slot, take)) take(slot.index);
  }
}

bool SlotLeases::is_leased_to_session(uint32_t index, uint64_t session) const {
  const auto leased = slots_.find_leased(index);
  return leased && leased->index == index && leased->lessee.session == session;
}

bool SlotLeases::is_qpn_of(uint32_t qpn, uid_t user) const {
  return user_of(roce::Qpn(qpn).slot()) == user;
}

uid_t SlotLeases::user_of(uint32_t slot) const {
  const auto leased = slots_.find_leased(slot);
  return leased && leased->index == slot ? leased->lessee.uid : kNobody;
}

}  // namespace verbena::agent
