// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/foreign_closer.h"

#include <atomic>
#include <csignal>
#include <ctime>
#include <mutex>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/sessions/user_turns.h"
#include "base/detached_thread.h"
#include "base/log.h"

namespace verbena::agent {
namespace {

constexpr size_t kStack = 256 << 10;
constexpr int kNudge = SIGUSR2;
constexpr long kNudgeInterval = 20'000'000;  // nanoseconds
// From this number of users on, those without waiting descriptors are dropped.
constexpr size_t kManyUsers = 64;

// Sends its thread a signal every 20 ms. The signal interrupts a close() that waits for a lingering socket;
// the kernel then completes the close.
class Nudge {
 public:
  Nudge() {
    sigset_t nudge;
    sigemptyset(&nudge);
    sigaddset(&nudge, kNudge);
    ::pthread_sigmask(SIG_UNBLOCK, &nudge, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kNudge;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec when{{0, kNudgeInterval}, {0, kNudgeInterval}};
    if (made_) ::timer_settime(timer_, 0, &when, nullptr);
  }
  ~Nudge() {
    if (made_) ::timer_delete(timer_);
  }
  Nudge(const Nudge&) = delete;
  Nudge& operator=(const Nudge&) = delete;

 private:
  timer_t timer_{};
  bool made_ = false;
};

}  // namespace

struct ForeignCloser::Work {
  std::mutex mutex;
  std::vector<UniqueFd> next;  // under the mutex
  bool at_work = false;        // under the mutex: a thread runs
  std::atomic<size_t> waiting = 0;
  std::atomic<TimePoint> progress{};  // time of the last close, or of the first queued descriptor
};

ForeignCloser::ForeignCloser() {
  struct sigaction nudged {};
  nudged.sa_handler = [](int) {};
  ::sigaction(kNudge, &nudged, nullptr);
}

void* ForeignCloser::run(void* argument) {
  const std::unique_ptr<std::shared_ptr<Work>> owned(static_cast<std::shared_ptr<Work>*>(argument));
  Work& work = **owned;
  ::pthread_setname_np(::pthread_self(), "verbena-closer");
  const Nudge nudge;
  for (;;) {
    std::vector<UniqueFd> now;
    {
      const std::lock_guard lock(work.mutex);
      if (work.next.empty()) {
        work.at_work = false;
        return nullptr;
      }
      now.swap(work.next);
    }
    for (UniqueFd& fd : now) {
      fd.reset();
      --work.waiting;
      work.progress = MonotonicClock::now();
    }
  }
}

void ForeignCloser::close(uid_t user, UniqueFd fd) {
  if (!fd) return;
  std::shared_ptr<Work>& work = users_[user];
  if (!work) work = std::make_shared<Work>();
  {
    const std::lock_guard lock(work->mutex);
    if (work->waiting == 0) work->progress = MonotonicClock::now();
    work->next.push_back(std::move(fd));
    ++work->waiting;
    if (work->at_work) return;
    work->at_work = true;
  }
  auto argument = std::make_unique<std::shared_ptr<Work>>(work);
  if (start_detached_thread(run, argument.get(), kStack)) {
    argument.release();  // owned by the thread now
  } else {
    const ActingFor acting(user);
    log_warning("no thread can be started: what user {} has sent stays open for now", user);
    const std::lock_guard lock(work->mutex);
    work->at_work = false;  // the next close() tries again
  }
  forget_idle();
}

size_t ForeignCloser::waiting(uid_t user) const {
  const auto found = users_.find(user);
  return found != users_.end() ? found->second->waiting.load() : 0;
}

bool ForeignCloser::is_behind(uid_t user) const {
  if (waiting(user) < kMaxOfUser) return false;
  return MonotonicClock::now() - users_.at(user)->progress.load() > kPatience;
}

void ForeignCloser::forget_idle() {
  if (users_.size() < kManyUsers) return;
  std::erase_if(users_, [](const auto& entry) { return entry.second->waiting == 0; });
}

}  // namespace verbena::agent
