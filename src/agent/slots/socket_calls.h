// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace verbena::agent {

// Makes system calls on sockets that a user's process has as well. A process can hold a socket's lock for as
// long as it likes: setsockopt(2) reads its argument under the lock, and the argument may lie in a file whose
// server does not answer. A thread makes the calls, one after the other; it starts when there are some, and
// ends with the last.
//
// For the agent's thread. It never waits for longer than a moment.
class SocketCalls {
 public:
  using Call = std::function<void()>;

  SocketCalls();
  // A thread that cannot end goes on with what it has.
  ~SocketCalls() = default;
  SocketCalls(const SocketCalls&) = delete;
  SocketCalls& operator=(const SocketCalls&) = delete;

  // Has the thread make the call, and waits for it for 50 ms, or not at all while an earlier call takes
  // longer than that. REQUIRES: the call owns what it needs
  void make(Call call);
  // How many are not made yet.
  size_t waiting() const;

 private:
  struct Work;
  static void* run(void* work);

  const std::shared_ptr<Work> work_;
};

}  // namespace verbena::agent
