// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/status/state_tree.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/client.h"

namespace verbena::agent {

// Shows an agent's devices to programs that cannot see the agent's state directory, in a directory of the
// mirror's own. These programs run in another container of the agent's pod. They share the agent's network
// namespace and connect to its abstract Unix socket, but have another file system.
//
// A mirror is a separate process and a client of the agent. A program that does not find the devices starts
// it (control::show_devices_here()). Programs of the mirror's user trust the mirror like an agent of their
// user. The mirror ends when its agent has ended without a successor, or when the agent's own directory
// becomes visible here.
//
// Single-threaded. The StateWriter has a thread of its own.
class DeviceMirror {
 public:
  // Returns once the directory is complete. Fails with EEXIST if the devices are shown already, and
  // ECONNREFUSED if no agent runs. Fails with EBUSY if another mirror holds the directory's lock for 8
  // seconds. Other errors come from connecting to the agent or from creating the directory.
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
  // Creates and locks the mirror's directory. Waits up to 8 seconds while another mirror holds the lock;
  // fails with EEXIST once the devices are shown.
  static Result<Place> take_place();
  DeviceMirror(std::unique_ptr<control::Client> client, Place place);

  Result<void> show();
  void on_news();
  void on_readers();
  void refresh();
  // Whether the mirror should go on: an agent runs, and the agent's own directory is not visible here. Checks
  // at most once a second, and returns true between checks.
  bool is_needed();
  void read_counters();
  void refresh_later();

  EventLoop loop_;
  const std::unique_ptr<control::Client> client_;
  const Place place_;
  StateWriter state_;
  UniqueFd mark_;  // marks the directory as valid for programs, while open
  std::vector<control::Link> links_;
  std::optional<EventLoop::TimerId> timer_;
  TimePoint next_look_{};
};

}  // namespace verbena::agent
