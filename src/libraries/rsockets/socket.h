// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/types.h>

#include "base/intrusive_list.h"
#include "base/own_fd.h"
#include "base/spin_lock.h"
#include "libraries/rsockets/address.h"
#include "libraries/rsockets/buffers.h"
#include "libraries/rsockets/configuration.h"

namespace verbena::rsockets {

class Socket;

// A set of conditions, to wait for or to report: the event bits of poll(2), and our own bits above these.
using Interest = uint32_t;
inline constexpr Interest kOpened = 1u << 16;       // the setup of the connection has succeeded or failed
inline constexpr Interest kFlushed = 1u << 17;      // all sent data have arrived, or the connection is down
inline constexpr Interest kControlRoom = 1u << 18;  // room for a control message, or the connection is down

// Wakes one thread that sleeps in poll(2). Any thread may call wake().
class Waker {
 public:
  // Returns the calling thread's waker; null if no descriptor is available for it.
  static Waker* of_this_thread();

  int fd() const { return fd_.get(); }
  void wake() {
    if (fd_.is_ours()) ::eventfd_write(fd_.get(), 1);
  }
  void reset() {
    eventfd_t count;
    if (fd_.is_ours()) ::eventfd_read(fd_.get(), &count);
  }

 private:
  OwnFd fd_;
  pid_t process_ = 0;
};

class WaitList;

// A thread and the conditions that it waits for, in a WaitList for the duration of a scope.
class Waiter {
 public:
  Waiter(WaitList& list, Waker& waker, Interest interest);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  friend class WaitList;
  WaitList& list_;
  ListHook hook_;
  Waker* waker_;
  Interest interest_;
};

// The threads that wait for one socket. These threads share the socket's completions and connection events:
// the thread that handles an event wakes the other threads whose conditions hold now. Thread-safe.
class WaitList {
 public:
  // Wakes the threads, except the caller, that wait for a condition in `ready`. REQUIRES: the caller has
  // computed `ready` after the change, such as an arrived message, that made the conditions true
  void wake(Interest ready);
  // Returns whether more than one thread waits. If so, a thread that consumes an event must re-arm the
  // notification for the others.
  bool is_shared() const { return count_.load(std::memory_order_relaxed) > 1; }

 private:
  friend class Waiter;
  SpinLock lock_;
  IntrusiveList<Waiter, &Waiter::hook_> waiters_;
  std::atomic<uint32_t> count_{0};
};

// Waits until a condition in `interest`, POLLERR or POLLHUP holds for the socket, and returns the conditions
// that hold. Busy-polls for Configuration::polling_time, then sleeps. Errors: EINTR if a signal interrupts
// the sleep, unless all installed handlers have SA_RESTART; ETIMEDOUT at the deadline; ENOMEM if the thread
// has no Waker; those of poll(2).
Result<Interest> wait_for(Socket& socket, Interest interest, TimePoint deadline = kNever);

// Like wait_for(), without a deadline. If `may_block` is false, fails with EAGAIN instead of waiting.
Result<void> await(Socket& socket, Interest interest, bool may_block);

// Waits until a plain descriptor is writable, or Configuration::wake_up_interval has passed. The caller then
// tries to write again. Errors: EINTR as for wait_for(); those of poll(2).
Result<void> await_room(int fd);

// Returns the timeout for poll(2): the milliseconds until the deadline, rounded up, at most
// Configuration::wake_up_interval.
int sleep_time(TimePoint deadline);

// Stores an option's value in the output buffer of rgetsockopt(). set() also stores the value's size in
// `*length`. Errors of set(): EFAULT if the buffer is null, EINVAL if it is too small.
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

// Returns the member of Sizes that an option of level SOL_RDMA sets, for the options that streams and
// datagrams share; null for other options.
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
  // Takes the lock that serializes senders or readers. If `may_block` is false, fails with EAGAIN instead of
  // waiting.
  static Result<std::unique_lock<std::mutex>> turn(std::mutex& mutex, bool may_block) {
    std::unique_lock lock = may_block ? std::unique_lock(mutex) : std::unique_lock(mutex, std::try_to_lock);
    return lock ? Result<std::unique_lock<std::mutex>>(std::move(lock)) : fail(EAGAIN);
  }

  // ---- waiting

  // Handles completions, then returns the conditions in `interest` that hold. May add POLLERR, POLLHUP and
  // POLLNVAL, as poll(2) does.
  virtual Interest ready(Interest interest) = 0;
  // Like ready(), but arms notifications first. From then on, a change of the conditions makes
  // event_descriptor() readable or wakes the calling thread's Waker. REQUIRES: the calling thread is in
  // waiters()
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
