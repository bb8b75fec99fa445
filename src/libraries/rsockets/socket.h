// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/result.h"
#include "libraries/rsockets/address.h"
#include "libraries/rsockets/buffers.h"
#include "libraries/rsockets/configuration.h"
#include "libraries/rsockets/waiting.h"

namespace verbena::rsockets {

// Stores an option's value in the output buffer of rgetsockopt(). set() fails with EINVAL if the buffer is
// too small, and EFAULT if the buffer is null.
class OptionValue {
 public:
  OptionValue(void* to, socklen_t* length) : to_(to), length_(length) {}
  socklen_t room() const { return *length_; }
  template <class T>
  Result<void> set(const T& value) {
    return set(&value, sizeof value);
  }
  Result<void> set(const void* from, size_t bytes);

 private:
  void* to_;
  socklen_t* length_;
};

// Reads an int from an option's value. Errors: EINVAL if the value is shorter than an int; EFAULT if `value`
// is null.
Result<int> int_option(const void* value, socklen_t length);

// The sizes of an rsocket's queues, in entries, and of its buffers. A new rsocket has the configured
// defaults; the application may change them before connecting.
struct Sizes {
  uint32_t send_queue = configuration().send_queue;
  uint32_t receive_queue = configuration().receive_queue;
  uint32_t inline_bytes = configuration().inline_bytes;
  uint32_t send_bytes = configuration().send_bytes;
  uint32_t receive_bytes = configuration().receive_bytes;
  uint32_t iomap_entries = configuration().iomap_entries;
};

// Returns the size that an option of level SOL_RDMA sets, for the options that streams and datagrams share;
// null for other options.
uint32_t Sizes::*size_option(int name);

// An rsocket: the interface that the C functions of rsocket(7) call. Functions that only streams support
// return EOPNOTSUPP by default. Thread-safe, as a socket is. An rsocket that is closed during a call of
// another thread lives until that call returns.
class Socket {
 public:
  Socket() = default;
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Returns the descriptor number that the application uses for the rsocket.
  virtual int number() const = 0;

  virtual Result<void> bind(const Address& address) = 0;
  virtual Result<void> listen(int /*backlog*/) { return fail(EOPNOTSUPP); }
  virtual Result<std::shared_ptr<Socket>> accept() { return fail(EOPNOTSUPP); }
  virtual Result<void> connect(const Address& address) = 0;
  virtual Result<void> shutdown(int how) = 0;
  // Closes the rsocket. Waits, for at most 60 s, until sent data have arrived. No call may follow; running
  // calls of other threads return soon.
  virtual void close() = 0;

  // Receives data, and returns the number of bytes; 0 at the end of a stream. Sets `*source` to the sender's
  // address, unless `source` is null.
  virtual Result<size_t> receive(Buffers into, int flags, Address* source) = 0;
  // Sends data, and returns the number of bytes taken. A null `destination` means the connected peer.
  virtual Result<size_t> send(Buffers from, int flags, const Address* destination) = 0;

  virtual Result<Address> local_address() = 0;
  virtual Result<Address> peer_address() = 0;
  virtual Result<void> set_option(int level, int name, const void* value, socklen_t length) = 0;
  virtual Result<void> get_option(int level, int name, OptionValue value) = 0;

  virtual Result<off_t> map(void* /*memory*/, size_t /*length*/, int /*protection*/, off_t /*offset*/) {
    return fail(EOPNOTSUPP);
  }
  virtual Result<void> unmap(void* /*memory*/, size_t /*length*/) { return fail(EOPNOTSUPP); }
  virtual Result<size_t> write_mapped(const void* /*from*/, size_t /*bytes*/, off_t /*offset*/,
                                      int /*flags*/) {
    return fail(EOPNOTSUPP);
  }

  int flags() const { return flags_.load(std::memory_order_relaxed); }
  void set_flags(int flags) { flags_.store(flags, std::memory_order_relaxed); }
  bool may_block(int flags_of_call) const {
    return (flags() & O_NONBLOCK) == 0 && (flags_of_call & MSG_DONTWAIT) == 0;
  }

  // ---- waiting

  // Handles completions, then returns the conditions in `interest` that hold. May add POLLERR, POLLHUP and
  // POLLNVAL, as poll(2) does.
  virtual Interest ready(Interest interest) = 0;
  // Like ready(), but arms notifications first. From then on, a change makes event_descriptor() readable or
  // wakes the calling thread's Waker. REQUIRES: the calling thread is in waiters()
  virtual Interest arm(Interest interest) = 0;
  // Returns a descriptor to poll in addition to the thread's Waker; -1 if there is none.
  virtual int event_descriptor() = 0;
  // Consumes the event that made event_descriptor() readable.
  virtual void take_event() = 0;
  WaitList& waiters() { return waiters_; }

 private:
  std::atomic<int> flags_{O_RDWR};
  WaitList waiters_;
};

}  // namespace verbena::rsockets
