// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace verbena::agent {

// Makes system calls on sockets that a user's process has as well. A process can hold a socket's lock for any
// time: setsockopt(2) reads its argument under the lock, and the argument may lie in a file whose server does
// not answer. So a thread makes the calls, one after the other. It starts with the first queued call and ends
// after the last.
//
// For the agent's thread, which never waits for longer than 50 ms.
class SocketCalls {
 public:
  using Call = std::function<void()>;

  SocketCalls();
  // Does not wait for the thread, which finishes the queued calls.
  ~SocketCalls() = default;
  SocketCalls(const SocketCalls&) = delete;
  SocketCalls& operator=(const SocketCalls&) = delete;

  // Queues the call and waits for it for up to 50 ms. Does not wait while an earlier call has taken longer
  // than that. REQUIRES: the call owns what it needs
  void make(Call call);
  // Returns the number of calls that are not complete.
  size_t waiting() const;

 private:
  struct Work;
  static void* run(void* work);

  const std::shared_ptr<Work> work_;
};

}  // namespace verbena::agent
