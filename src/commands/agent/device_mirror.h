// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/status/state_writer.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/client.h"

namespace verbena::agent {

// Shows an agent's devices in a directory of its own, for programs that do not see the agent's directory.
// These programs run in another container of the agent's pod: they share its network namespace and reach it
// by its abstract name, but have other files.
//
// A mirror is a process of its own, and a client of the agent. The first program that needs it starts it
// (control::show_devices_here()). Programs of its user trust it like an agent of their user. It ends when its
// agent has ended without a successor, or when the agent's own directory becomes visible here.
//
// For one thread. The StateWriter has another.
class DeviceMirror {
 public:
  // Returns once the directory is complete. EEXIST: the devices are shown already. ECONNREFUSED: no agent
  // runs. Other errors: the directory cannot be created.
  static Result<std::unique_ptr<DeviceMirror>> create();
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;

  EventLoop& loop() { return loop_; }
  void run() { loop_.run(); }

 private:
  struct Place {
    std::string directory;
    UniqueFd lock;
  };
  // Locks the mirror's directory. Waits for another starting mirror to complete or end.
  static Result<Place> take_place();
  DeviceMirror(std::unique_ptr<control::Client> client, Place place);

  Result<void> show();
  void on_news();
  void on_readers();
  void refresh();
  // Whether an agent runs whose own directory is not visible here.
  bool is_needed();
  void read_counters();
  void refresh_later();

  EventLoop loop_;
  const std::unique_ptr<control::Client> client_;
  const Place place_;
  StateWriter state_;
  UniqueFd mark_;  // marks the directory as valid for programs
  std::vector<control::Link> links_;
  std::optional<EventLoop::TimerId> timer_;
  TimePoint next_look_{};
};

}  // namespace verbena::agent
