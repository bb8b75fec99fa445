// SPDX-License-Identifier: Apache-2.0
#include "management/cm/events.h"

namespace verbena::cm {

Handler::Return Handler::may_return(uint32_t, const Arrival&) {
  return Return::kNever;
}
void Handler::on_alternate_path(LocalId, uint64_t, const Lap&) {}
void Handler::on_alternate_path_answer(LocalId, uint64_t, const Apr&) {}

}  // namespace verbena::cm
