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

// Maps descriptor numbers to rsockets. Thread-safe; a lookup takes only the lock of its entry.
//
// An rsocket does not survive fork(): its queue pair and its connection belong to the parent. In the child,
// find() and remove() skip inherited entries; the child closes their descriptors with remove_inherited().
class SocketTable {
 public:
  static SocketTable& instance();

  // Adds the rsocket under its number. Errors: EMFILE if the number is too large for the table.
  Result<void> insert(std::shared_ptr<Socket> socket);
  // Returns the rsocket with this number; null if there is none or the parent process created it.
  std::shared_ptr<Socket> find(int number);
  // Removes and returns the rsocket that find() returns; null if find() returns null.
  std::shared_ptr<Socket> remove(int number);
  // Removes an rsocket that a parent process created, without destroying the parent's resources. Returns
  // false if there is no such rsocket.
  bool remove_inherited(int number);

  // For a child after fork(): releases all locks, which threads of the parent may have held.
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

// Returns the process ID, updated after each fork(): cheaper than getpid(2).
pid_t current_process();

}  // namespace verbena::rsockets
