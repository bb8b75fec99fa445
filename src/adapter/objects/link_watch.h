// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "adapter/objects/async_events.h"
#include "adapter/objects/open_device.h"
#include "adapter/process/engine.h"

namespace verbena::adapter {

// Watches the link that an opened device stands for, and tells the application of it: events of the port, and
// the end of the device. As when the kernel takes a device away, the application is told once and for all,
// its requests are flushed, and whatever it asks for from then on answers EIO; what it has it may destroy.
class LinkWatch : private engine::LinkListener {
 public:
  // Watches until destroyed. `on_gone` is called once, when the link was deleted; it may come from any
  // thread.
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
