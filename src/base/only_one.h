// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace verbena {

// A process-wide object that is made at first use and never destroyed, since the application's threads may
// outlive every static object. Replaces function-local statics: a child of fork() may inherit the guard of a
// static locked by another thread, and would block. If several threads call get() first at the same time,
// each makes an object; one is kept, the others are deleted. Any thread.
template <class T>
class OnlyOne {
 public:
  constexpr OnlyOne() = default;
  OnlyOne(const OnlyOne&) = delete;
  OnlyOne& operator=(const OnlyOne&) = delete;

  // Returns the object. `make()` returns a new T that has no other owner.
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
  // Returns the object, or nullptr if none has been made yet.
  T* made() const { return made_.load(std::memory_order_acquire); }
  // For a child after fork(): returns and forgets the object inherited from the parent, so that the next
  // get() makes a new one. Does not destroy the inherited object.
  T* forget() { return made_.exchange(nullptr, std::memory_order_acq_rel); }
  // Like forget(), but only if the object is still `parents`: another thread of the child may have replaced
  // it already.
  void forget(T& parents) {
    T* known = &parents;
    made_.compare_exchange_strong(known, nullptr, std::memory_order_acq_rel);
  }

 private:
  std::atomic<T*> made_{nullptr};
};

}  // namespace verbena
