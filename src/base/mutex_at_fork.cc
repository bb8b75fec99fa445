// SPDX-License-Identifier: Apache-2.0
#include "base/mutex_at_fork.h"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <thread>

namespace verbena {

// The list of all MutexAtFork objects. Its own mutex is held during fork().
class MutexesAtFork {
 public:
  // Never destroyed: threads of the application may outlive every static object.
  static MutexesAtFork& all() {
    alignas(MutexesAtFork) static std::byte place[sizeof(MutexesAtFork)];
    static MutexesAtFork* const the_only = new (place) MutexesAtFork;
    return *the_only;
  }

  void add(MutexAtFork& one) {
    const std::lock_guard guard(mutex_);
    known_.push_back(one);
  }
  void remove(MutexAtFork& one) {
    const std::lock_guard guard(mutex_);
    one.known_.unlink();
  }

  static void before_fork() {
    all().mutex_.lock();
    for (MutexAtFork& one : all().known_) one.forker_has_it_ = take(one.mutex_);
  }
  static void after_fork_in_parent() {
    for (MutexAtFork& one : all().known_) {
      if (one.forker_has_it_) one.mutex_.unlock();
    }
    all().mutex_.unlock();
  }
  static void after_fork_in_child() {
    for (MutexAtFork& one : all().known_) {
      if (one.forker_has_it_) {
        one.mutex_.unlock();
      } else {
        new (&one.mutex_) std::mutex;  // held by a thread that the child lacks
      }
    }
    all().mutex_.unlock();
  }

 private:
  // Polls instead of using a timed mutex, whose locking GCC 12's thread sanitizer does not see.
  static bool take(std::mutex& mutex) {
    for (std::chrono::milliseconds waited{}; !mutex.try_lock(); waited += kLook) {
      if (waited >= kPatience) return false;
      std::this_thread::sleep_for(kLook);
    }
    return true;
  }

  // Longer than a holder may wait for a processor.
  static constexpr std::chrono::seconds kPatience{10};
  static constexpr std::chrono::milliseconds kLook{1};

  std::mutex mutex_;
  IntrusiveList<MutexAtFork, &MutexAtFork::known_> known_;
};

namespace {

// Registered when the library is loaded. Fork handlers registered first lock last: right for locks under
// which no lock is taken that fork() waits for without a limit.
[[maybe_unused]] const int mutexes_watched = ::pthread_atfork(
    MutexesAtFork::before_fork, MutexesAtFork::after_fork_in_parent, MutexesAtFork::after_fork_in_child);

constinit std::mutex registering;
[[maybe_unused]] const int registering_watched = lock_at_fork<[]() -> std::mutex& { return registering; }>();

}  // namespace

MutexAtFork::MutexAtFork() {
  MutexesAtFork::all().add(*this);
}
MutexAtFork::~MutexAtFork() {
  MutexesAtFork::all().remove(*this);
}

void call_at_exit(void (*function)()) {
  const std::lock_guard guard(registering);
  std::atexit(function);
}

}  // namespace verbena
