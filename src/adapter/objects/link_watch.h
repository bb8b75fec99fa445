// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "adapter/objects/async_events.h"
#include "adapter/objects/open_device.h"
#include "adapter/process/engine.h"

namespace verbena::adapter {

// Watches the link of an opened device and posts asynchronous events to the application: port events, GID
// changes, and IBV_EVENT_DEVICE_FATAL when the link is deleted. After a deletion, as when the kernel removes
// a device, posted requests are flushed, and most calls that create or modify objects return EIO. Objects
// that exist can still be destroyed.
class LinkWatch : private engine::LinkListener {
 public:
  // Watches the link until destroyed. If the link is deleted, `on_gone` runs once, in a thread of the engine.
  LinkWatch(OpenDevice& device, std::function<void()> on_gone);
  ~LinkWatch() override;

 private:
  void on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) override;
  void disappear();

  OpenDevice& device_;
  const std::function<void()> on_gone_;
  AsyncEvents<kPortEvents.size()> events_;
};

}  // namespace verbena::adapter
