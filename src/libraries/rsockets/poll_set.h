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

// The descriptors of one rpoll() call: rsockets and plain descriptors mixed. For one thread.
class PollSet {
 public:
  explicit PollSet(std::span<pollfd> wanted);

  // Waits until a descriptor is ready or the deadline passes. Returns how many are ready, with their revents
  // set. Busy-polls for the configured time, then sleeps. Errors: EINTR and the others of poll(2).
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
  std::vector<pollfd> asleep_;  // what sleep() polls: the waker, then one entry for each of `wanted_`
};

}  // namespace verbena::rsockets
