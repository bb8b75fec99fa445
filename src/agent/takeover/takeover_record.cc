// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/takeover_record.h"

#include <utility>

#include "base/log.h"

namespace verbena::agent {

Result<void> TakeoverRecord::create() {
  auto vault = TakeoverState::create();
  if (!vault) return fail(vault.error().code);
  vault_ = std::move(*vault);
  return {};
}

void TakeoverRecord::put_slot(uint32_t index) {
  if (!vault_.put_slot(slots_.record(index)) || vault_.is_long()) rewrite();
}

void TakeoverRecord::put_links(int link_file) {
  link_file_ = link_file;
  if (!vault_.put_links(link_file) || vault_.is_long()) rewrite();
}

void TakeoverRecord::put_ledger(int ledger) {
  ledger_ = ledger;
  if (ledger >= 0 && (!vault_.put_ledger(ledger) || vault_.is_long())) rewrite();
}

void TakeoverRecord::rewrite() {
  if (const auto written = vault_.rewrite(slots_.records(), {link_file_, ledger_, served_.only()});
      !written) {
    log_warning("clients would not survive the agent's end: errno {}", written.error().code);
  }
}

}  // namespace verbena::agent
