// SPDX-License-Identifier: Apache-2.0
#include "base/discard.h"

#include <array>
#include <atomic>

#include <pthread.h>

#include "base/log.h"
#include "base/signals_blocked.h"

namespace verbena {
namespace {

// One that is wanted where memory may be locked (mlockall) takes little of it.
constexpr size_t kStack = 256 << 10;

// No lock and nothing allocated: this holds at every moment at which somebody may fork, and at which the
// process may end. Descriptors, counted from 1.
std::array<std::atomic<int>, kMostDiscarded> places{};
std::atomic<bool> at_work{false};

// The thread is not in the child, wherever it was in the parent. What it had still to close, the child has,
// too, and its own thread will close.
[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, [] { at_work = false; });

bool put(int fd) {
  for (auto& place : places) {
    int free = 0;
    if (place.compare_exchange_strong(free, fd + 1)) return true;
  }
  return false;
}

bool is_anything_there() {
  for (const auto& place : places) {
    if (place != 0) return true;
  }
  return false;
}

void close_all() {
  for (auto& place : places) {
    if (const int fd = place.exchange(0) - 1; fd >= 0) ::close(fd);
  }
}

// Who has put something there, and found us at work, may have found that as we were about to leave.
void* work(void*) {
  ::pthread_setname_np(::pthread_self(), "verbena-discard");
  do {
    while (is_anything_there()) close_all();
    at_work = false;
  } while (is_anything_there() && !at_work.exchange(true));
  return nullptr;
}

bool start() {
  const SignalsBlocked blocked;  // inherited by the new thread
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread;
  const bool started = ::pthread_create(&thread, &attributes, work, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace

void discard(UniqueFd fd) {
  if (!fd) return;
  if (!put(fd.release())) {
    return log_warning("other processes have sent more descriptors than can be closed: one stays open");
  }
  if (at_work.exchange(true)) return;
  // Where no thread can be started now it waits for the next one.
  if (!start()) at_work = false;
}

}  // namespace verbena
