// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <verbena/async/ready_list.hpp>
#include <verbena/async/task.hpp>
#include <verbena/async/timer.hpp>
#include <verbena/result.hpp>

namespace verbena {

// Something that a loop polls, such as a completion queue. Only the loop's thread calls it.
class event_source {
 public:
  virtual ~event_source() = default;
  // Does what is ready, and returns whether there was anything.
  virtual bool poll() = 0;
  // Prepares fd() to become readable at the next event. Returns false if an event has come already: call
  // poll() before you wait.
  virtual bool arm() = 0;
  // Returns the descriptor that the loop watches for reading.
  virtual int fd() const = 0;
};

struct loop_options {
  // How long the loop polls after the last event before it sleeps. Polling costs a processor, and saves the
  // microseconds of a wake-up. duration::max(): the loop never sleeps. zero(): it always does.
  duration spin = std::chrono::microseconds(50);
  // The clock for timers. A simulation may have a clock of its own, and then drives the loop by turn().
  time_point (*now)() = clock::now;
};

// Runs the coroutines of one thread. Resumes each when the completion, connection event or timer has come for
// which it waits. A program has one loop for each thread that it wants to use. Objects of one loop cannot
// move to another.
//
// run() drives the loop alone. Another event loop (asio, libuv, poll(2)) can drive this loop instead. It
// calls turn() until turn() returns false, and prepare() after that. If prepare() returns true, it waits
// until fd() is readable. Then it calls turn() again.
class loop {
 public:
  explicit loop(loop_options options = {}) : options_(options), epoll_(make_epoll()), alarm_(epoll_) {}
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop() {
    spawned_.clear();
    services_.clear();
  }

  // Runs the coroutine to its end, beside all others of the loop. Returns its result, or throws its
  // exception.
  template <class T>
  T run(task<T> main) {
    detail::waiter start;
    start.suspend(main.handle());
    wake(start);
    while (!main.done()) wait();
    return main.take();
  }
  template <class Start>
  requires std::invocable<Start, loop&>
  auto run(Start start) { return run(start(*this)); }

  // Starts a coroutine that the loop owns. The loop destroys it at its end, or when the loop itself is
  // destroyed. If an exception leaves the coroutine, calls on_failure with it.
  void spawn(task<> work) { spawn(std::move(work), nullptr); }
  // Starts a coroutine from a function object, such as a lambda with captures. Keeps the object until the
  // coroutine's end, because the coroutine refers to it.
  template <class Start>
  requires std::invocable<Start&, loop&>
  void spawn(Start start) {
    const auto kept = std::make_shared<Start>(std::move(start));
    spawn((*kept)(*this), kept);
  }
  // Number of coroutines that spawn() has started and that have not ended.
  std::size_t running() const { return spawned_.size(); }
  // The function that takes the exceptions of spawned coroutines. By default prints them to stderr, except
  // those of class disconnected, which are a normal end.
  std::function<void(std::exception_ptr)> on_failure = print;

  // Suspend the coroutine that awaits them: sleep() for a time, yield() until the other coroutines that are
  // ready have run.
  auto sleep(duration time) { return sleep_awaiter{*this, now() + time}; }
  auto yield() { return yield_awaiter{*this}; }

  // ---- for other event loops

  int fd() const { return epoll_.get(); }
  // Does what is ready, and returns whether there was anything.
  bool turn() {
    is_prepared_ = false;
    bool any = timers_.run(now());
    for_each_source([&](event_source& one) { any |= one.poll(); });
    any |= run_ready();
    if (!ended_.empty()) forget_ended();
    return any;
  }
  // Prepares fd() to become readable at the next event. Returns false if an event has come already: call
  // turn() first.
  bool prepare() {
    if (!ready_.empty()) return false;
    alarm_.set(timers_.next());
    bool is_quiet = true;
    for_each_source([&](event_source& one) { is_quiet &= one.arm(); });
    is_quiet &= ready_.empty();
    is_prepared_ = is_quiet;
    return is_quiet;
  }

  // ---- for awaitables

  // Lets the loop resume the waiter's coroutine in this turn or the next. A call between two turns makes fd()
  // readable. Only the loop's thread may call this function.
  void wake(detail::waiter& one) {
    ready_.push_back(one);
    if (std::exchange(is_prepared_, false)) alarm_.set(time_point{});
  }
  // Wakes all waiters of a list.
  void wake_all(detail::list<detail::waiter>& all) {
    while (!all.empty()) wake(all.front());
  }
  detail::timers& timers() { return timers_; }
  time_point now() const { return options_.now(); }
  // Returns the loop's object of class Service. The first call makes the object, by Service(loop&). Services
  // keep what coroutines share, such as completion queues. They are destroyed with the loop, after its
  // coroutines.
  template <class Service>
  Service& service() {
    static constexpr char kKey = 0;  // its address stands for the class
    auto& found = services_[&kKey];
    if (!found) found = std::make_shared<Service>(*this);
    return *static_cast<Service*>(found.get());
  }
  // add() makes the loop poll the source until remove(). Sources may call both functions while they are
  // polled or armed. add() throws std::system_error if the descriptor of the source cannot be watched.
  // REQUIRES: the source lives until remove()
  void add(event_source& source) {
    watch(epoll_, source.fd());
    sources_.push_back(&source);
  }
  void remove(event_source& source) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source.fd(), nullptr);
    std::ranges::replace(sources_, &source, nullptr);
  }

 private:
  struct spawned {
    std::shared_ptr<void> kept;  // what the coroutine refers to
    std::optional<task<>> work;
    detail::waiter start;
  };
  using place = std::list<spawned>::iterator;

  // A descriptor that becomes readable at a point in time.
  class alarm {
   public:
    explicit alarm(const detail::descriptor& epoll)
        : fd_(detail::checked(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))) {
      watch(epoll, fd_.get());
    }
    // Sets the point in time; nullopt: the descriptor does not become readable.
    void set(std::optional<time_point> when) {
      if (when == set_) return;
      set_ = when;
      itimerspec wanted{};
      if (when) {
        const auto since = std::max<duration>(when->time_since_epoch(), std::chrono::nanoseconds(1));
        const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
        wanted.it_value.tv_sec = seconds.count();
        wanted.it_value.tv_nsec = std::chrono::nanoseconds(since - seconds).count();
      }
      ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &wanted, nullptr);
    }

   private:
    detail::descriptor fd_;
    std::optional<time_point> set_;
  };

  struct sleep_awaiter {
    loop& where;
    time_point when;
    detail::waiter waiting{};
    detail::timer end{};
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> coroutine) {
      waiting.suspend(coroutine);
      end.start(where.timers_, when, [this] { where.wake(waiting); });
    }
    void await_resume() const {}
  };
  struct yield_awaiter {
    loop& where;
    detail::waiter waiting{};
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> coroutine) {
      waiting.suspend(coroutine);
      where.wake(waiting);
    }
    void await_resume() const {}
  };

  static detail::descriptor make_epoll() { return detail::checked(::epoll_create1(EPOLL_CLOEXEC)); }
  static void watch(const detail::descriptor& epoll, int file) {
    epoll_event event{};
    event.events = EPOLLIN;
    const int returned = ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, file, &event);
    if (returned < 0 && errno == EPERM)
      throw std::system_error(
          EPERM, std::generic_category(),
          "watch a descriptor: it is of a regular file or a directory, which are always ready");
    detail::check(returned);
  }
  static void print(std::exception_ptr reason) {
    try {
      std::rethrow_exception(std::move(reason));
    } catch (const disconnected&) {
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "a coroutine has failed: %s\n", thrown.what());
    } catch (...) {
      std::fputs("a coroutine has failed\n", stderr);
    }
  }

  task<> watch_over(task<> work, place entry) {
    try {
      co_await work;
    } catch (...) {
      if (on_failure) on_failure(std::current_exception());
    }
    ended_.push_back(entry);
  }

  void spawn(task<> work, std::shared_ptr<void> kept) {
    spawned& entry = spawned_.emplace_back();
    entry.kept = std::move(kept);
    entry.work.emplace(watch_over(std::move(work), std::prev(spawned_.end())));
    entry.start.suspend(entry.work->handle());
    wake(entry.start);
  }

  void forget_ended() {
    const auto ended = std::exchange(ended_, {});
    for (const place each : ended) spawned_.erase(each);
  }

  // Calls `visit` with each source. `visit` may add sources, which are visited, too. It may also remove
  // sources. A removed source leaves a null pointer until the next call of this function, so that the other
  // sources keep their places.
  template <class Visit>
  void for_each_source(Visit visit) {
    std::erase(sources_, nullptr);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (sources_[i] != nullptr) visit(*sources_[i]);
    }
  }

  // Resumes the coroutines that were ready before the call, and returns whether there were any. Coroutines
  // that become ready meanwhile wait for the next turn.
  bool run_ready() {
    now_.take(ready_);
    const bool any = !now_.empty();
    while (!now_.empty()) now_.front().resume();
    return any;
  }
  // Runs turns until one has done something. Sleeps when nothing has happened for options_.spin.
  void wait() {
    const time_point begin = clock::now();
    while (!turn()) {
      if (options_.spin == duration::max() || clock::now() - begin < options_.spin || !prepare()) continue;
      epoll_event unused{};
      ::epoll_wait(epoll_.get(), &unused, 1, -1);
    }
  }

  const loop_options options_;
  detail::descriptor epoll_;
  alarm alarm_;
  detail::timers timers_;
  detail::list<detail::waiter> ready_, now_;
  std::vector<event_source*> sources_;  // null: removed
  std::map<const void*, std::shared_ptr<void>> services_;
  std::list<spawned> spawned_;
  std::vector<place> ended_;  // entries of spawned_ whose coroutines have ended
  bool is_prepared_ = false;  // nothing has happened since prepare()
};

}  // namespace verbena
