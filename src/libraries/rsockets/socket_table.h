// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "base/spin_lock.h"
#include "libraries/rsockets/socket.h"

namespace verbena::rsockets {

// From the number of a descriptor to the rsocket that is behind it. Thread-safe; looking up takes no lock but
// that of the entry.
//
// An rsocket does not survive fork(): its queue pair belongs to the parent, and so does the connection. The
// child finds it here only in order to close the descriptor.
class SocketTable {
 public:
  static SocketTable& instance();

  // Errors: EMFILE.
  Result<void> insert(std::shared_ptr<Socket> socket);
  // Null if there is none, or if it is the parent's.
  std::shared_ptr<Socket> find(int number);
  // Takes it out.
  std::shared_ptr<Socket> remove(int number);
  // The descriptor of an rsocket that a parent process made: takes it out.
  bool remove_inherited(int number);

  // In a child after fork(): a lock that is taken is one of a thread of the parent's.
  void free_in_child();

 private:
  struct Entry {
    SpinLock lock;
    std::shared_ptr<Socket> socket;
    pid_t owner = 0;
  };
  static constexpr size_t kPageEntries = 1024;
  static constexpr size_t kPages = 1024;
  using Page = std::array<Entry, kPageEntries>;

  Entry* entry(int number);

  std::array<std::atomic<Page*>, kPages> pages_{};
};

// The process, as told after a fork(): cheaper than getpid(2).
pid_t current_process();

}  // namespace verbena::rsockets
