// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/link_watch.h"

#include <algorithm>

namespace verbena::adapter {

LinkWatch::LinkWatch(OpenDevice& device, std::function<void()> on_gone)
    : device_(device),
      on_gone_(std::move(on_gone)),
      events_(kPortEvents, {.element = {.port_num = 1}, .event_type = {}}, nullptr) {
  device_.engine()->subscribe(*this);
}

LinkWatch::~LinkWatch() {
  device_.engine()->unsubscribe(*this);
  if (!device_.inherited()) events_.withdraw(device_.events());
}

void LinkWatch::on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) {
  const auto find = [&](const std::vector<control::Link>& links) -> const control::Link* {
    const auto at = std::find_if(links.begin(), links.end(),
                                 [&](const control::Link& l) { return l.device_index == device_.index(); });
    return at == links.end() ? nullptr : &*at;
  };
  const control::Link* was = find(before);
  const control::Link* is = find(now);
  if (was == nullptr) return;
  if (is == nullptr) {
    disappear();
    return;
  }
  if (device_.is_up(*was) != device_.is_up(*is)) {
    events_.post(device_.is_up(*is) ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, device_.events());
  }
  if (was->gids != is->gids) events_.post(IBV_EVENT_GID_CHANGE, device_.events());
}

void LinkWatch::disappear() {
  if (!device_.become_gone()) return;
  on_gone_();
  events_.post(IBV_EVENT_DEVICE_FATAL, device_.events());
  device_.events().end();
}

}  // namespace verbena::adapter
