// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace verbena {

// Something that there is once in a process: made when it is first asked for, and never destroyed, as threads
// of the application may outlive every static object. In place of a function's static, whose guard a child of
// fork() would find taken without end, if another thread of its parent was just making it. Of threads that
// come first together each makes one, and one is kept. Any thread.
template <class T>
class OnlyOne {
 public:
  constexpr OnlyOne() = default;
  OnlyOne(const OnlyOne&) = delete;
  OnlyOne& operator=(const OnlyOne&) = delete;

  // `make()` answers a new T that has no other owner.
  template <class Make>
  T& get(Make make) {
    if (T* known = made_.load(std::memory_order_acquire)) return *known;
    T* known = nullptr;
    T* fresh = make();
    if (made_.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *known;
  }
  T& get() {
    return get([] { return new T; });
  }
  // nullptr: there is none yet.
  T* made() const { return made_.load(std::memory_order_acquire); }
  // In a child after fork(): it is to have its own. Answers the parent's.
  T* forget() { return made_.exchange(nullptr, std::memory_order_acq_rel); }
  // The same, unless another thread has done it.
  void forget(T& parents) {
    T* known = &parents;
    made_.compare_exchange_strong(known, nullptr, std::memory_order_acq_rel);
  }

 private:
  std::atomic<T*> made_{nullptr};
};

}  // namespace verbena
