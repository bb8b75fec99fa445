// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/result.h"
#include "libraries/rsockets/address.h"
#include "libraries/rsockets/buffers.h"
#include "libraries/rsockets/configuration.h"
#include "libraries/rsockets/waiting.h"

namespace verbena::rsockets {

// Where an option's value goes: rgetsockopt(). Errors: EINVAL where there is too little room.
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

// An int out of an option's value. Errors: EINVAL, EFAULT.
Result<int> int_option(const void* value, socklen_t length);

// The sizes an rsocket is made with, and that the application may change before it is connected.
struct Sizes {
  uint32_t send_queue = configuration().send_queue;
  uint32_t receive_queue = configuration().receive_queue;
  uint32_t inline_bytes = configuration().inline_bytes;
  uint32_t send_bytes = configuration().send_bytes;
  uint32_t receive_bytes = configuration().receive_bytes;
  uint32_t iomap_entries = configuration().iomap_entries;
};

// One rsocket, as the calls see it. The application may use it from several threads, as a socket; what it
// closes while another thread uses it lives until that thread is done.
class Socket {
 public:
  Socket() = default;
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // The descriptor that the application knows it by.
  virtual int number() const = 0;

  virtual Result<void> bind(const Address& address) = 0;
  virtual Result<void> listen(int backlog);
  virtual Result<std::shared_ptr<Socket>> accept();
  virtual Result<void> connect(const Address& address) = 0;
  virtual Result<void> shutdown(int how) = 0;
  // The last call of all: what other threads still do fails soon.
  virtual void close() = 0;

  // `source`: whom from, if not null.
  virtual Result<size_t> receive(Buffers into, int flags, Address* source) = 0;
  // `destination`: null where connect() has said it.
  virtual Result<size_t> send(Buffers from, int flags, const Address* destination) = 0;

  virtual Result<Address> local_address() = 0;
  virtual Result<Address> peer_address() = 0;
  virtual Result<void> set_option(int level, int name, const void* value, socklen_t length) = 0;
  virtual Result<void> get_option(int level, int name, OptionValue value) = 0;

  virtual Result<off_t> map(void* memory, size_t length, int protection, off_t offset);
  virtual Result<void> unmap(void* memory, size_t length);
  virtual Result<size_t> write_mapped(const void* from, size_t bytes, off_t offset, int flags);

  int flags() const { return flags_.load(std::memory_order_relaxed); }
  void set_flags(int flags) { flags_.store(flags, std::memory_order_relaxed); }
  bool may_block(int flags_of_call) const {
    return (flags() & O_NONBLOCK) == 0 && (flags_of_call & MSG_DONTWAIT) == 0;
  }

  // For waiting. What of `interest` is there; handles completions first.
  virtual Interest ready(Interest interest) = 0;
  // The same, after making sure that event_descriptor() becomes readable, or the calling thread's waker is
  // woken, when it may be otherwise. REQUIRES: the caller stands in waiters()
  virtual Interest arm(Interest interest) = 0;
  // A descriptor to poll besides, or -1.
  virtual int event_descriptor() = 0;
  // It was readable.
  virtual void take_event() = 0;
  WaitList& waiters() { return waiters_; }

 private:
  std::atomic<int> flags_{O_RDWR};
  WaitList waiters_;
};

}  // namespace verbena::rsockets
