// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <fcntl.h>
#include <verbena/async/loop.hpp>

namespace verbena {

// Runs a loop inside of an asio program: the program calls io_context::run(), and the loop's coroutines run
// between asio's handlers, on the same thread. This header does not include asio, so it works with both
// variants:
//
//   asio::io_context context;
//   verbena::loop io;
//   verbena::asio_driver<asio::posix::stream_descriptor> driver(context.get_executor(), io);
//   io.spawn(serve(io));
//   context.run();  // returns when the driver has stopped and asio has no other work
//
// The loop does not busy-poll: it sleeps with asio as soon as nothing is ready. So a message takes some
// microseconds longer than with loop::run().
template <class StreamDescriptor>
class asio_driver {
 public:
  // Starts to drive the loop, and runs its first turns. Throws std::system_error if the process can have no
  // further file descriptor. REQUIRES: one thread runs the executor's handlers; the loop outlives the driver
  template <class Executor>
  asio_driver(const Executor& executor, loop& io) : state_(std::make_shared<state>(executor, io)) {
    state::go_on(state_);
  }
  asio_driver(const asio_driver&) = delete;
  asio_driver& operator=(const asio_driver&) = delete;
  ~asio_driver() { stop(); }

  // Ends the driver's work, so that io_context::run() may return. Coroutines stay where they are suspended.
  void stop() {
    state_->io = nullptr;
    state_->ready.close();
  }

 private:
  // The state that the driver shares with its handlers in asio, which may run after the driver's end.
  struct state {
    template <class Executor>
    state(const Executor& executor, loop& which) : io(&which), ready(executor, copy_of(which.fd())) {}
    // Returns a copy of a descriptor, because asio's StreamDescriptor closes the descriptor that it has.
    static int copy_of(int fd) {
      const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
      detail::check(copy);
      return copy;
    }

    // Runs up to kTurns turns of the loop. Then lets asio's other handlers run. If nothing is ready, waits
    // with asio until the loop's descriptor is readable.
    static void go_on(const std::shared_ptr<state>& self) {
      for (int turns = 0; self->io != nullptr && turns < kTurns; ++turns) {
        if (self->io->turn() || self->io == nullptr || !self->io->prepare()) continue;
        self->ready.async_wait(StreamDescriptor::wait_read, [self](const auto& failure) {
          if (!failure) go_on(self);
        });
        return;
      }
      if (self->io != nullptr) post(self->ready.get_executor(), [self] { go_on(self); });
    }

    static constexpr int kTurns = 64;
    loop* io;  // nullptr: the driver has stopped
    StreamDescriptor ready;
  };

  std::shared_ptr<state> state_;
};

}  // namespace verbena
