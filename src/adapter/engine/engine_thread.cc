// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/engine_thread.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "adapter/memory/guarded.h"
#include "base/cancellation_off.h"
#include "base/detached_thread.h"
#include "base/log.h"
#include "base/plain_calls.h"

namespace verbena::engine {
namespace {

// How often the thread looks, when it is awake anyway, whether the handlers of adapter/memory/guarded.h are
// in place.
constexpr Duration kGuardInterval = std::chrono::milliseconds(100);

enum Source : uint32_t { kWakeup, kAlarm, kPackets, kBell, kSending };

// While it asks, the thread looks so often what else there is.
constexpr Duration kNewsInterval = std::chrono::milliseconds(1);

constexpr Duration kBrokenInterval = std::chrono::milliseconds(10);

// On unless the user says otherwise: where processors are scarce or shared in a way that the kernel does not
// tell of, the user knows better.
bool halt_polling_wanted() {
  const char* value = ::secure_getenv("VERBENA_HALT_POLLING");
  return value == nullptr || std::string_view(value) != "0";
}

epoll_event event_of(uint32_t events, Source source) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = source;
  return event;
}

// Told once of arriving packets, and then not until the next call.
epoll_event packets_event(bool listening, Source source = kPackets) {
  return event_of((listening ? EPOLLIN : 0u) | EPOLLONESHOT, source);
}

}  // namespace

Result<std::unique_ptr<EngineThread>> EngineThread::start(Shard& shard, int control_fd,
                                                          std::function<int()> on_control,
                                                          std::function<void()> on_loss) {
  std::unique_ptr<EngineThread> engine(
      new EngineThread(shard, control_fd, std::move(on_control), std::move(on_loss)));
  if (auto opened = engine->open(); !opened) return tl::unexpected(opened.error());
  shard.set_sleeper(engine.get());
  if (halt_polling_wanted()) {
    engine->demand_.emplace();
    shard.set_halt_polling(true);
  }
  try {
    const SignalsBlocked blocked;  // inherited by the new thread
    engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    shard.set_sleeper(nullptr);
    return fail(error.code().value() != 0 ? error.code().value() : EAGAIN);
  }
  pthread_setname_np(engine->thread_.native_handle(), "verbena-engine");
  return engine;
}

Result<void> EngineThread::open() {
  epoll_ = UniqueFd(plain_epoll_create());
  wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  alarm_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll_ || !wakeup_ || !alarm_) return fail(errno);
  const auto add = [&](int fd, uint32_t events, Source source) {
    epoll_event event = event_of(events, source);
    return plain_epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (!add(wakeup_.get(), EPOLLIN, kWakeup) || !add(alarm_.get(), EPOLLIN, kAlarm)) return fail(errno);
  Result<void> attached;
  shard_.for_each_receive_fd([&](int fd) {
    if (attached) attached = attach(fd, false);
  });
  return attached;
}

EngineThread::~EngineThread() {
  end();
  shard_.set_sleeper(nullptr);
}

// A thread that sleeps at an epoll set whose number the application has closed hears of nothing that could be
// told it. It can still be cancelled: that goes by a signal that the C library keeps open.
void EngineThread::end() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  if (wakeup_.is_ours() && epoll_.is_ours()) {
    wake();
  } else {
    ::pthread_cancel(thread_.native_handle());
  }
  thread_.join();
}

// Those of this thread, and the agent's news, which only a process's first has.
bool EngineThread::is_whole() const {
  return epoll_.is_ours() && wakeup_.is_ours() && alarm_.is_ours();
}

// From here on each call that names one of them fails. The thread itself goes by what it knows of the epoll
// set, and comes to its end.
void EngineThread::on_loss(bool is_first) {
  if (wakeup_.is_ours()) wake();
  for (OwnFd* each : {&epoll_, &wakeup_, &alarm_}) each->settle();
  if (is_first) on_loss_();
}

void EngineThread::await_beginning(Duration patience) const {
  if (begun_.load(std::memory_order_acquire)) return;
  constexpr Duration kInterval = std::chrono::microseconds(50);
  const CancellationOff uncancelled;
  const TimePoint end = MonotonicClock::now() + patience;
  while (!begun_.load(std::memory_order_acquire) && MonotonicClock::now() < end) {
    std::this_thread::sleep_for(kInterval);
  }
}

void EngineThread::abandon() {
  // Forgotten, and neither joined nor detached: what the handle names is not in this process.
  std::construct_at(&thread_);
  epoll_.reset();
  wakeup_.reset();
  alarm_.reset();
  std::construct_at(&sets_);  // the thread may have held its lock
  if (demand_) demand_->abandon();
}

void EngineThread::wake() {
  // Past the C library, whose write() is a cancellation point: the caller may hold the shard's lock.
  const uint64_t one = 1;
  ::syscall(SYS_write, wakeup_.get(), &one, sizeof one);
}

void EngineThread::listen(bool on) {
  epoll_event event = packets_event(on);
  for (const int fd : attached_) plain_epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  if (on && sets_.listen()) wake();
}

Result<void> EngineThread::attach(int fd, bool listening) {
  try {
    attached_.reserve(attached_.size() + 1);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  epoll_event event = packets_event(listening);
  if (plain_epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail(errno);
  attached_.push_back(fd);
  return {};
}

// The thread may sleep without the set.
Result<void> EngineThread::attach_set(int set) {
  if (const auto added = sets_.add(set); !added) return added;
  wake();
  return {};
}

void EngineThread::detach(int fd) {
  if (sets_.remove(fd)) return wake();
  std::erase(attached_, fd);
  plain_epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Result<void> EngineThread::attach_bell(const Bell* bell) {
  if (bell_ != nullptr) plain_epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, bell_->fd(), nullptr);
  bell_ = nullptr;
  hears_bell_.store(false, std::memory_order_seq_cst);
  if (bell == nullptr) return {};
  epoll_event event = packets_event(false, kBell);
  if (plain_epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell->fd(), &event) != 0) return fail(errno);
  bell_ = bell;
  return {};
}

// It may have rung, and not be heard any more: what is on is said again.
void EngineThread::hear_bell(bool on) {
  if (bell_ == nullptr || (!on && !hears_bell_.load(std::memory_order_relaxed))) return;
  hears_bell_.store(on, std::memory_order_seq_cst);
  epoll_event event = packets_event(on, kBell);
  plain_epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, bell_->fd(), &event);
}

void EngineThread::come_by(TimePoint time) {
  const int64_t ns = time.time_since_epoch().count();  // of the monotonic clock, as the timer's
  const itimerspec when{.it_interval = {}, .it_value = {ns / 1'000'000'000, ns % 1'000'000'000}};
  ::timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

// The port may have replaced the socket and closed it (net/udp/sender.h). Then another may have its number,
// and the epoll set has lost it. Or it is still in the set, because a child process has a copy: so each
// socket reports only once.
void EngineThread::watch_sending(int fd) {
  if (fd < 0 && watched_ < 0) return;
  epoll_event event = event_of(EPOLLOUT | EPOLLONESHOT, kSending);
  if (fd == watched_ && plain_epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return;
  if (fd != watched_ && watched_ >= 0) plain_epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched_, nullptr);
  watched_ = fd >= 0 && plain_epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? fd : -1;
}

// Returns what ppoll(2) returns.
int EngineThread::sleep_until(TimePoint deadline, std::span<pollfd> polled) const {
  timespec rest{};
  if (deadline != kNever) {
    const int64_t ns = std::max<int64_t>(0, (deadline - MonotonicClock::now()).count());
    rest = {ns / 1'000'000'000, ns % 1'000'000'000};
  }
  const CancellationAllowed asleep;  // by end()
  return ::ppoll(polled.data(), polled.size(), deadline == kNever ? nullptr : &rest, nullptr);
}

void EngineThread::wait_until(TimePoint deadline) {
  std::array<pollfd, 2 + PolledSets::kMax> entries;
  pollfd& own = entries[0] = {.fd = epoll_.get(), .events = POLLIN, .revents = 0};
  pollfd& control = entries[1] = {.fd = control_fd_, .events = POLLIN, .revents = 0};
  const std::span sets = std::span(entries).subspan(2);
  const size_t count = sets_.begin_sleep(sets);
  const int ready = sleep_until(deadline, std::span(entries).first(2 + count));
  sets_.end_sleep(sets.first(count));
  bool is_broken = ready < 0 && errno != EINTR;
  if (ready > 0 && own.revents != 0) is_broken = !answer_events();
  if (ready > 0 && control.revents != 0) hear_control();
  // The application has closed descriptors that are not its own. Whatever that breaks, we must not spin.
  if (is_broken) std::this_thread::sleep_for(kBrokenInterval);
}

// Returns false if the set is not ours any more.
bool EngineThread::answer_events() {
  std::array<epoll_event, 4> events;
  const int count = plain_epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) answer(events[static_cast<size_t>(i)].data.u32);
  return count >= 0;
}

// If the descriptor is closed, and the agent's session has no other, the thread hears no more news.
void EngineThread::hear_control() {
  try {
    control_fd_ = on_control_();
  } catch (const std::exception& error) {  // out of memory: the next news may find some
    log_error("news of links not taken: {}", error.what());
  }
}

// A thread of the application may have gone to the bell since it rang, and the ring be for that thread. Such
// a thread says first that we hear the bell no longer, and then takes what is there. So a ring that came
// while we still heard it told of nothing that the thread would miss.
void EngineThread::hear_bell_ring() {
  const Bell* const bell = shard_.bell();
  if (bell == nullptr || !bell->hear() || hears_bell_.load(std::memory_order_seq_cst)) return;
  shard_.exclusively([&] {
    if (bell_ != nullptr && !hears_bell_.load(std::memory_order_relaxed)) bell_->ring();
  });
}

void EngineThread::answer(uint32_t source) {
  if (source == kWakeup || source == kAlarm) {
    const int fd = source == kWakeup ? wakeup_.get() : alarm_.get();
    uint64_t ignored;
    [[maybe_unused]] const ssize_t got = ::read(fd, &ignored, sizeof ignored);
  } else if (source == kBell) {
    hear_bell_ring();
  }
}

void EngineThread::run() {
  const CancellationOff whole;
  begun_.store(true, std::memory_order_release);
  TimePoint guard_checked = MonotonicClock::now();
  TimePoint news_heard = guard_checked;
  Demand demand;
  while (!stopping_.load(std::memory_order_acquire) && !shard_.is_lost()) {
    const TimePoint now = MonotonicClock::now();
    // A handler that the application has installed since would get the faults of our copies.
    if (now - guard_checked >= kGuardInterval) {
      guard_checked = now;
      if (!memory::fault_guard_in_place()) memory::install_fault_guard();
    }
    const Shard::EngineView view = shard_.run_engine(demand);
    demand = {};
    const bool asks = view.asks && now - news_heard < kNewsInterval;
    if (asks) {
      demand = demand_->pause();
    } else {
      watch_sending(view.send_fd);
      wait_until(view.asks ? now : view.wake_at);
      news_heard = MonotonicClock::now();
    }
  }
}

}  // namespace verbena::engine
