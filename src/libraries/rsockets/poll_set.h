// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <poll.h>

#include "base/result.h"
#include "base/time.h"
#include "libraries/rsockets/socket.h"

namespace verbena::rsockets {

// Polls rsockets and plain descriptors together, for one call of rpoll() or a similar function. For one
// thread.
class PollSet {
 public:
  explicit PollSet(std::span<pollfd> wanted);

  // Waits until a descriptor is ready or the deadline passes. Sets `revents` of all descriptors, and returns
  // the number of ready ones; 0 at the deadline. Busy-polls for Configuration::polling_time, then sleeps.
  // Errors: those of poll(2), such as EINTR; ENOMEM if the thread has no Waker.
  Result<int> wait(TimePoint deadline);

 private:
  int check();
  int check_plain();
  Result<int> sleep(TimePoint deadline);
  bool arm();
  void prepare(int waker);
  void take_events();

  std::span<pollfd> wanted_;
  std::vector<std::shared_ptr<Socket>> sockets_;  // null for plain descriptors
  std::vector<pollfd> plain_;                     // the plain descriptors of `wanted_`, in order
  std::vector<pollfd> asleep_;  // polled by sleep(): the waker, then one entry for each of `wanted_`
};

}  // namespace verbena::rsockets
