// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_fd.h"

#include <algorithm>
#include <array>
#include <atomic>

#include <pthread.h>

#include "base/detached_thread.h"
#include "base/log.h"

namespace verbena {

namespace {

constexpr size_t kStack = 256 << 10;

// No locks and no allocation, so that this is consistent at any moment of a fork() or an exit. An entry is a
// descriptor plus 1; 0 is free.
std::array<std::atomic<int>, kMaxDiscarded> places{};
std::atomic<bool> at_work{false};

// The thread does not exist in a child. The child has copies of the pending descriptors and closes them on
// its own thread.
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

// A thread that saw at_work set just before it was cleared relies on this one: so look again after clearing
// it.
void* work(void*) {
  ::pthread_setname_np(::pthread_self(), "verbena-discard");
  do {
    while (is_anything_there()) close_all();
    at_work = false;
  } while (is_anything_there() && !at_work.exchange(true));
  return nullptr;
}

}  // namespace

void discard(UniqueFd fd) {
  if (!fd) return;
  if (!put(fd.release())) {
    return log_warning("other processes have sent more descriptors than can be closed: one stays open");
  }
  if (at_work.exchange(true)) return;
  // If no thread can be started, the descriptor waits for the next call.
  if (!start_detached_thread(work, nullptr, kStack)) at_work = false;
}

size_t discarding() {
  return static_cast<size_t>(std::ranges::count_if(places, [](const auto& place) { return place != 0; }));
}

}  // namespace verbena
