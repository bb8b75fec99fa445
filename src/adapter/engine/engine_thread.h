// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "adapter/engine/processor_demand.h"
#include "adapter/engine/shard.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::engine {

// The thread that sleeps in epoll for a shard, and drives it while the application does not poll. It blocks
// all signals but those of faults, which adapter/memory/guarded.h turns into answers.
class EngineThread : private Sleeper {
 public:
  // `on_control` is called in the thread when `control_fd` is readable (the agent has news); -1: none.
  // `on_loss` when descriptors are found that are not ours any more, by whatever thread, with the shard's
  // lock held.
  static Result<std::unique_ptr<EngineThread>> start(
      Shard& shard, int control_fd, std::function<void()> on_control, std::function<void()> on_loss = [] {});
  ~EngineThread() override;

  // Ends the thread and waits until it has, also where nothing is left by which to wake it. All else stays.
  // One thread at a time.
  void end();

  // Sleeps until the thread runs, for as long as `patience`. Before that it answers no peer. Before fork() it
  // has to run, too: while it starts it may hold locks of the allocator that a child would never get. The C
  // library frees its own in a child; those of the sanitizers of GCC 12 it does not know.
  void await_beginning(Duration patience) const;

  // In a child after fork(): the thread does not exit here, it is just not there.
  void abandon();

 private:
  EngineThread(Shard& shard, int control_fd, std::function<void()> on_control, std::function<void()> on_loss)
      : shard_(shard),
        control_fd_(control_fd),
        on_control_(std::move(on_control)),
        on_loss_(std::move(on_loss)) {}

  Result<void> open();
  void run();
  void wait_until(TimePoint deadline);
  void answer(uint32_t source);
  void hear_bell_ring();
  void watch_sending(int fd);

  void wake() override;
  void listen(bool on) override;
  Result<void> attach(int fd, bool listening) override;
  void detach(int fd) override;
  Result<void> attach_bell(const Bell* bell) override;
  void hear_bell(bool on) override;
  void come_by(TimePoint time) override;
  bool is_whole() const override;
  void on_loss(bool is_first) override;

  Shard& shard_;
  const int control_fd_;
  const std::function<void()> on_control_;
  const std::function<void()> on_loss_;
  OwnFd epoll_;
  OwnFd wakeup_;  // an eventfd
  OwnFd alarm_;   // a timerfd
  std::atomic<bool> begun_{false};
  std::atomic<bool> stopping_{false};
  std::vector<int> attached_;            // under the shard's lock
  const Bell* bell_ = nullptr;           // likewise
  std::atomic<bool> hears_bell_{false};  // likewise, and read by the thread: it may ring once
  int watched_ = -1;                     // the descriptor whose EPOLLOUT we wait for
  // Where the thread may ask on after it has served a packet. Of the thread alone.
  std::optional<ProcessorDemand> demand_;
  std::thread thread_;
};

}  // namespace verbena::engine
