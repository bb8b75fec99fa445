// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/takeover.h"

#include <utility>

#include <fcntl.h>

#include "control/model/agent_process.h"

namespace verbena::agent {

Result<void> TakeoverRecord::create() {
  auto takeover_state = TakeoverState::create();
  if (!takeover_state) return fail(takeover_state.error().code);
  takeover_state_ = std::move(*takeover_state);
  return {};
}

void TakeoverRecord::put_slot(uint32_t index) {
  if (!takeover_state_.put_slot(slots_.record(index)) || takeover_state_.is_long()) rewrite();
}

void TakeoverRecord::lease_ending(const LeasedSlot& ending) {
  const SlotRecord slot = slots_.record(ending.index);
  for (const int fd : {slot.page, slot.forwarder_end, slot.process}) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy) former_.push_back({slot.uid, std::move(copy), ending.descriptors});
  }
}

void TakeoverRecord::put_links(const control::LinkSnapshot& links) {
  auto file = control::write_link_file(links);
  if (!file) return log_warning("links would not survive the agent's end: errno {}", file.error().code);
  link_file_ = std::move(*file);
  if (!takeover_state_.put_links(link_file_.get()) || takeover_state_.is_long()) rewrite();
}

void TakeoverRecord::put_ledger(int ledger) {
  ledger_ = ledger;
  if (ledger >= 0 && (!takeover_state_.put_ledger(ledger) || takeover_state_.is_long())) rewrite();
}

void TakeoverRecord::rewrite() {
  const auto written = takeover_state_.rewrite(slots_.records(), {link_file_.get(), ledger_, served_.only()});
  if (!written) log_warning("clients would not survive the agent's end: errno {}", written.error().code);
  for (Former& each : std::exchange(former_, {})) {
    closer_.close(each.user, std::move(each.fd), std::move(each.share));
  }
}

namespace {

// Maximum time for a client to restore its objects after an agent was killed.
constexpr Duration kReturnTime = std::chrono::seconds(3);

}  // namespace

Takeover::Takeover(Subjects subjects, std::function<void()> on_settled)
    : of_(subjects), on_settled_(std::move(on_settled)) {}

void Takeover::begin() {
  if (!of_.wire.may_be_ours()) return settle();
  log_info("{}: waiting for a client of an earlier agent", of_.wire.reason());
  waiting_ = true;
  timer_ = of_.loop.at(MonotonicClock::now() + control::kSurvivorWait, [this] {
    timer_.reset();
    hear_the_last();
  });
}

// Gives clients that have connected by now a last chance: on a busy machine the agent may not have run during
// the wait. After a client is accepted, the next round of the loop reads its hello.
void Takeover::hear_the_last() {
  const bool is_let_in = !of_.loop.has_work_for(::geteuid());
  of_.loop.in_next_round([this, is_let_in] { is_let_in ? give_up_waiting() : hear_the_last(); });
}

void Takeover::give_up_waiting() {
  if (!waiting_) return;
  if (of_.loop.has_work_for(::geteuid())) return of_.loop.in_next_round([this] { give_up_waiting(); });
  of_.wire.open();  // former holders of the port may have ended meanwhile
  settle();
}

void Takeover::settle() {
  if (timer_) of_.loop.cancel(*std::exchange(timer_, std::nullopt));
  waiting_ = false;
  of_.slots.pause_wire();
  if (!of_.wire.has_sockets()) log_warning("no wire: {}", of_.wire.reason());
  on_settled_();
}

void Takeover::offer_state(UniqueFd takeover_state) {
  if (is_over()) return;
  TakeoverState::Contents contents = TakeoverState::take(takeover_state.get());
  if (contents.slots.empty()) return;
  if (of_.wire.has_sockets()) {  // only slots without a wire can be from before
    std::erase_if(contents.slots, [](const SlotRecord& slot) { return slot.socket >= 0; });
  }
  const auto adopted = of_.slots.adopt(contents);
  // Several messages may have a slot's descriptors. A close may wait for locks of the slot's user.
  ForeignCloser* const closer = of_.wire.closer();
  for (UniqueFd& fd : contents.fds) {
    if (fd && closer != nullptr) closer->close(::geteuid(), std::move(fd));
  }
  if (!adopted) {
    log_warning("an earlier agent's slots cannot be taken over: errno {}", adopted.error().code);
    return;
  }
  if (contents.links && !has_greeted_) {
    if (const auto snapshot = control::read_link_file(contents.links.get())) of_.links.restore(*snapshot);
  }
  of_.connection_management.take_over(contents.ledger ? contents.ledger.get() : -1);
  if (contents.only) of_.served.adopt(*contents.only);
  of_.connection_management.expect_returns(MonotonicClock::now() + kReturnTime);
  log_info("took over {} slots of an earlier agent", contents.slots.size());
  of_.slots.watch_orphans();
  if (!waiting_) {
    on_settled_();
  } else if (of_.wire.has_sockets()) {
    settle();
  }
}

}  // namespace verbena::agent
