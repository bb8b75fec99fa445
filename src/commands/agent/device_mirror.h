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

// Shows the devices of an agent in a directory of its own, for programs that do not see the agent's: those in
// another container of its pod. They share the agent's network namespace, and so reach it by its abstract
// name, but have other files than it has.
//
// It is a process of its own, started by the first such program (control::show_devices_here()), and a
// client of the agent. Programs of its user trust it, as they trust an agent of their user. It ends when its
// agent has ended and no other has come, or when the other one's directory is seen here.
//
// One thread, beside that of the StateWriter.
class DeviceMirror {
 public:
  // Returns when the devices are shown. EEXIST: they are already; ECONNREFUSED: no agent runs; or why there
  // can be no directory.
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
  // Waits until another mirror that has begun here is complete, or gone.
  static Result<Place> take_place();
  DeviceMirror(std::unique_ptr<control::Client> client, Place place);

  Result<void> show();
  void on_news();
  void on_readers();
  void refresh();
  // Whether there is an agent whose directory is not seen here.
  bool is_needed();
  void read_counters();
  void refresh_later();

  EventLoop loop_;
  const std::unique_ptr<control::Client> client_;
  const Place place_;
  StateWriter state_;
  UniqueFd mark_;  // with it the directory counts
  std::vector<control::Link> links_;
  std::optional<EventLoop::TimerId> timer_;
  TimePoint next_look_{};
};

}  // namespace verbena::agent
