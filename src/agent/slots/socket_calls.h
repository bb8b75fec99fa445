// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace verbena::agent {

// Makes the agent's system calls on sockets of which a user's process has a copy. This process can hold the
// socket's lock for any time: setsockopt(2) reads its argument under the lock, perhaps from a dead file
// server. So a separate thread makes the calls, one after the other. The thread starts with the first queued
// call and ends after the last.
//
// All methods are called on the agent's thread. Only make() waits, for up to 50 ms.
class SocketCalls {
 public:
  using Call = std::function<void()>;

  SocketCalls();
  // Does not wait for the thread, which finishes the queued calls.
  ~SocketCalls() = default;
  SocketCalls(const SocketCalls&) = delete;
  SocketCalls& operator=(const SocketCalls&) = delete;

  // Queues the call and waits up to 50 ms for its completion. Once a call has taken longer, no call waits
  // until the queue is empty again. REQUIRES: the call owns all that it uses
  void make(Call call);
  // Returns the number of calls that are queued or in progress.
  size_t waiting() const;

 private:
  struct Work;
  static void* run(void* work);

  const std::shared_ptr<Work> work_;
};

}  // namespace verbena::agent
