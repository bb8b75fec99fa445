// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_pile.h"

#include <ctime>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/detached_thread.h"
#include "base/log.h"
#include "base/own_number.h"
#include "base/processor_clock.h"
#include "base/socket_option.h"

namespace verbena {

namespace {

constexpr size_t kStack = 256 << 10;
// The thread looks for new descriptors this often while all that wait are of users that pause.
constexpr Duration kLook = std::chrono::milliseconds(50);

void sleep_until(TimePoint next, TimePoint now) {
  const auto time = std::min(next - now, kLook);
  const timespec wait{0, static_cast<long>(time.count())};
  if (time.count() > 0) ::nanosleep(&wait, nullptr);
}

}  // namespace

ForeignFile::ForeignFile(int fd) {
  if (const auto cookie = get_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE)) {
    kind_ = S_IFSOCK;
    identity_ = {*cookie};
    return;
  }
  struct statx about {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &about) != 0) return;
  kind_ = about.stx_mode & S_IFMT;
  identity_ = {makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino};
}

bool ForeignFile::has_quick_close(int fd) const {
  return kind_ == S_IFSOCK || kind_ == S_IFIFO || kind_ == S_IFCHR || kind_ == kAnonymous ||
         ::fcntl(fd, F_GET_SEALS) >= 0;
}

void ForeignPile::add(UniqueFd fd, uid_t user) {
  put(std::move(fd), user);
  if (at_work_.exchange(true)) return;
  // If no thread can be started, the descriptor waits for the next call.
  if (!start_detached_thread(work, this, kStack)) at_work_ = false;
}

size_t ForeignPile::size() const {
  return static_cast<size_t>(
      std::ranges::count_if(places_, [](const Place& place) { return place.state == State::kWaits; }));
}

size_t ForeignPile::size_of(uid_t user) const {
  return static_cast<size_t>(std::ranges::count_if(
      places_, [user](const Place& place) { return place.state == State::kWaits && place.user == user; }));
}

void ForeignPile::forget() {
  for (Place& place : places_) place.state = State::kFree;
  at_work_ = false;
}

ForeignPile::Place* ForeignPile::take_place() {
  for (Place& place : places_) {
    State free = State::kFree;
    if (place.state.compare_exchange_strong(free, State::kTaken)) return &place;
  }
  return nullptr;
}

void ForeignPile::put(UniqueFd fd, uid_t user) {
  Place* const place = take_place();
  if (place == nullptr) {
    (void)fd.release();
    return log_warning("other processes have sent more descriptors than can be closed: one stays open");
  }
  place->file = ForeignFile(fd.get());
  if (place->file.has_quick_close(fd.get())) fd = with_own_number(std::move(fd));
  place->user = user;
  place->fd = fd.release();
  place->state = State::kWaits;
}

// Returns the time at which the first of those that are left may be handled; kNever: none is left.
TimePoint ForeignPile::handle_all() {
  TimePoint next = kNever;
  for (Place& place : places_) {
    if (place.state != State::kWaits) continue;
    const TimePoint from = pauses_.until(place.user);
    if (from <= MonotonicClock::now()) {
      handle(place);
    } else {
      next = std::min(next, from);
    }
  }
  return next;
}

void ForeignPile::handle(Place& place) {
  const int fd = place.fd;
  const uid_t user = place.user;
  const ForeignFile file = place.file;
  place.state = State::kFree;
  if (ForeignFile(fd) != file) return;
  const TimePoint begun = ProcessorClock::now();
  UniqueFd rest = piece_(UniqueFd(fd), user);
  pauses_.note(user, ProcessorClock::now() - begun, MonotonicClock::now());
  if (rest) put(std::move(rest), user);
}

// A thread that saw at_work_ set just before it was cleared relies on this one: so look again after clearing
// it.
void* ForeignPile::work(void* pile) {
  ForeignPile& its = *static_cast<ForeignPile*>(pile);
  ::pthread_setname_np(::pthread_self(), its.thread_);
  do {
    while (its.size() > 0) {
      if (const TimePoint next = its.handle_all(); next != kNever) sleep_until(next, MonotonicClock::now());
    }
    its.at_work_ = false;
  } while (its.size() > 0 && !its.at_work_.exchange(true));
  return nullptr;
}

}  // namespace verbena
