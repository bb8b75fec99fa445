// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/takeover_record.h"

#include <utility>

#include "base/log.h"

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

void TakeoverRecord::put_links(int link_file) {
  link_file_ = link_file;
  if (!takeover_state_.put_links(link_file) || takeover_state_.is_long()) rewrite();
}

void TakeoverRecord::put_ledger(int ledger) {
  ledger_ = ledger;
  if (ledger >= 0 && (!takeover_state_.put_ledger(ledger) || takeover_state_.is_long())) rewrite();
}

void TakeoverRecord::rewrite() {
  if (const auto written = takeover_state_.rewrite(slots_.records(), {link_file_, ledger_, served_.only()});
      !written) {
    log_warning("clients would not survive the agent's end: errno {}", written.error().code);
  }
}

}  // namespace verbena::agent
