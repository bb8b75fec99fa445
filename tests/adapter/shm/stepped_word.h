// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace verbena::shm {

// Words of shared memory under a scheduler: it lets an operation make one access, and then another thread.
//
// There are no threads. An operation that has come to its next access and may not make it is abandoned by an
// exception; next time it is run again from its beginning, with the answers that it had until there.
//
// Stores wait in a buffer of the thread's, as they do in an x86 processor, until the scheduler commits the
// oldest, or until the thread makes a store or an exchange that is sequentially consistent, or a full fence.
struct SteppedThread {
  struct Store {
    uint32_t* to;
    uint32_t value;
  };
  static constexpr uint32_t kMaxAccesses = 16;  // of one operation: none has a loop
  static constexpr uint32_t kMaxStores = 16;

  uint32_t accesses = 0;  // made so far by the operation under way
  std::array<uint32_t, kMaxAccesses> answers{};
  uint32_t stores = 0;  // not committed
  std::array<Store, kMaxStores> buffer{};

  void commit_oldest() {
    *buffer[0].to = buffer[0].value;
    std::shift_left(buffer.begin(), buffer.begin() + stores, 1);
    buffer[--stores] = {};
  }
  void commit_all() {
    while (stores > 0) commit_oldest();
  }
  uint32_t load(const uint32_t* from) const {
    for (uint32_t i = stores; i > 0; --i) {
      if (buffer[i - 1].to == from) return buffer[i - 1].value;
    }
    return *from;
  }
  void store(uint32_t* to, uint32_t value) {
    if (stores == kMaxStores) std::abort();
    buffer[stores++] = {to, value};
  }
};

class Stepping {
 public:
  struct Paused {};

  // Makes the next access of `operation`, which is the thread's, and what follows until the one after it.
  // True: it has ended. The first step of all makes no access.
  template <class Operation>
  static bool step(SteppedThread& thread, Operation operation) {
    running_ = &thread;
    replayed_ = 0;
    may_access_ = started_;
    try {
      operation();
    } catch (const Paused&) {
      return false;
    }
    thread.accesses = 0;
    thread.answers = {};
    return true;
  }
  // Whether the operation of the next step() has begun already.
  static void set_started(bool started) { started_ = started; }

  template <class Access>
  static uint32_t access(Access make) {
    if (replayed_ < running_->accesses) return running_->answers[replayed_++];
    if (!may_access_) throw Paused{};
    may_access_ = false;
    if (running_->accesses == SteppedThread::kMaxAccesses) std::abort();
    const uint32_t answer = make(*running_);
    running_->answers[running_->accesses++] = answer;
    ++replayed_;
    return answer;
  }

 private:
  inline static SteppedThread* running_ = nullptr;
  inline static uint32_t replayed_ = 0;
  inline static bool may_access_ = false;
  inline static bool started_ = false;
};

// Has what the lanes use of std::atomic<uint32_t>. `kStoresWait`: also sequentially consistent stores wait in
// the buffer, which is wrong, and must be found out.
template <bool kStoresWait = false>
struct SteppedWord {
  uint32_t value;

  uint32_t load(std::memory_order) const {
    return Stepping::access([this](SteppedThread& thread) { return thread.load(&value); });
  }
  void store(uint32_t to, std::memory_order order) {
    Stepping::access([this, to, order](SteppedThread& thread) {
      thread.store(&value, to);
      if (order == std::memory_order_seq_cst && !kStoresWait) thread.commit_all();
      return 0;
    });
  }
  uint32_t exchange(uint32_t to, std::memory_order) {
    return Stepping::access([this, to](SteppedThread& thread) {
      thread.commit_all();
      const uint32_t before = value;
      value = to;
      return before;
    });
  }
};

}  // namespace verbena::shm
