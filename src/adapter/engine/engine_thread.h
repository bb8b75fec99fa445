// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <poll.h>

#include "adapter/engine/polled_sets.h"
#include "adapter/engine/processor_demand.h"
#include "adapter/engine/shard.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::engine {

// The thread that sleeps in ppoll(2) for a shard, and drives it (makes its progress) while the application
// does not poll. It blocks all signals except those of memory faults, which adapter/memory/guarded.h handles.
class EngineThread : private Sleeper {
 public:
  // Starts the thread. Errors: the kernel's, such as EMFILE or EAGAIN.
  // `on_control` is called in the thread when `control_fd` is readable (the agent has sent something); -1:
  // none. It returns the descriptor to listen to from then on: the application may have closed this one by
  // mistake.
  // `on_loss` is called when descriptors turn out not to be ours any more (base/own_fd.h). Any thread may
  // call it, with the shard's lock held.
  static Result<std::unique_ptr<EngineThread>> start(
      Shard& shard, int control_fd, std::function<int()> on_control, std::function<void()> on_loss = [] {});
  ~EngineThread() override;

  // Ends the thread and waits until it has ended, even if its wake-up descriptors are lost. Everything else
  // stays. One thread at a time.
  void end();

  // Sleeps until the thread runs, but not longer than `patience`. Until then the thread answers no peer. Call
  // this also before fork(): a starting thread may hold locks of the allocator, which the child would never
  // get. (The C library frees its own locks in a child, but not those of GCC 12's sanitizers.)
  void await_beginning(Duration patience) const;

  // For a child after fork(), which does not have the thread: lets go of it and of its descriptors.
  void abandon();

 private:
  EngineThread(Shard& shard, int control_fd, std::function<int()> on_control, std::function<void()> on_loss)
      : shard_(shard),
        control_fd_(control_fd),
        on_control_(std::move(on_control)),
        on_loss_(std::move(on_loss)) {}

  Result<void> open();
  void run();
  void wait_until(TimePoint deadline);
  int sleep_until(TimePoint deadline, std::span<pollfd> polled) const;
  bool answer_events();
  void answer(uint32_t source);
  void hear_control();
  void hear_bell_ring();
  void watch_sending(int fd);

  void wake() override;
  void listen(bool on) override;
  Result<void> attach(int fd, bool listening) override;
  Result<void> attach_set(int set) override;
  void detach(int fd) override;
  Result<void> attach_bell(const Bell* bell) override;
  void hear_bell(bool on) override;
  void come_by(TimePoint time) override;
  bool is_whole() const override;
  void on_loss(bool is_first) override;

  Shard& shard_;
  int control_fd_;  // only the thread uses it
  const std::function<int()> on_control_;
  const std::function<void()> on_loss_;
  OwnFd epoll_;   // of sockets and the descriptors below
  OwnFd wakeup_;  // an eventfd
  OwnFd alarm_;   // a timerfd
  std::atomic<bool> begun_{false};
  std::atomic<bool> stopping_{false};
  std::vector<int> attached_;  // under the shard's lock
  PolledSets sets_;
  const Bell* bell_ = nullptr;  // under the shard's lock
  // Written under the lock, read by the thread too. After a change to false one more ring may be heard.
  std::atomic<bool> hears_bell_{false};
  int watched_ = -1;  // the descriptor whose EPOLLOUT we wait for
  // The demand for processors that the thread sees between busy polls; none: it must not busy-poll. Only the
  // thread uses it.
  std::optional<ProcessorDemand> demand_;
  std::thread thread_;
};

}  // namespace verbena::engine
