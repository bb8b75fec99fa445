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

// What one call of rpoll() watches: rsockets and plain descriptors, mixed. Used by one thread.
class PollSet {
 public:
  explicit PollSet(std::span<pollfd> wanted);

  // How many are ready at the deadline or before; their revents are set. Looks for a while, then sleeps.
  // Errors: EINTR and the others of poll(2).
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
  std::vector<pollfd> plain_;                     // the plain ones among them, in order
  std::vector<pollfd> asleep_;                    // a waker, then one each
};

}  // namespace verbena::rsockets
