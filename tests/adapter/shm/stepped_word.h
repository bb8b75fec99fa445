// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace verbena::shm {

// Simulates threads that access shared words, one access at a time, under a scheduler's control.
//
// There are no real threads. An operation that reaches an access it may not make yet is abandoned by an
// exception. Next time it is run again from its beginning, with the recorded results of its earlier accesses.
//
// Stores wait in the thread's store buffer, as in an x86 processor. The scheduler commits the oldest one. A
// sequentially consistent store, an exchange or a full fence commits all.
struct SteppedThread {
  struct Store {
    uint32_t* to;
    uint32_t value;
  };
  static constexpr uint32_t kMaxAccesses = 16;  // per operation; operations have no loops
  static constexpr uint32_t kMaxStores = 16;

  uint32_t accesses = 0;  // made by the current operation
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

  // Runs `operation` up to its next access, makes that access, and continues up to the one after. True: the
  // operation has ended. The first step makes no access.
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
  // Sets whether the operation of the next step() has begun already.
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

// Replaces std::atomic<uint32_t> in rings. With `kStoresWait`, even sequentially consistent stores wait in
// the buffer; a test checks that this error is detected.
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
