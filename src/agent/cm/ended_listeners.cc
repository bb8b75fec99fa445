// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/ended_listeners.h"

#include <algorithm>

namespace verbena::agent {

void EndedListeners::add(const CmClient& client, uint16_t port, TimePoint now) {
  while (!listeners_.empty() &&
         (listeners_.size() == kMax || listeners_.front().ended + kRemembered <= now)) {
    listeners_.pop_front();
  }
  listeners_.push_back({&client, port, now});
}

bool EndedListeners::has(uint16_t port, TimePoint now) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [&](const Listener& listener) {
    return listener.port == port && now < listener.ended + kRemembered;
  });
}

void EndedListeners::forget(const CmClient& client) {
  std::erase_if(listeners_, [&](const Listener& listener) { return listener.client == &client; });
}

}  // namespace verbena::agent
